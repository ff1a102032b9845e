// SPDX-License-Identifier: Apache-2.0
// SQLite's own files with another xWrite.
#include "tests/service/fault_vfs.h"

#include <sqlite3.h>

#include <atomic>

#include "kernels/base/log.h"

namespace snapkv::service {
namespace {

sqlite3_vfs* g_real = nullptr;
sqlite3_vfs g_vfs;
sqlite3_io_methods g_methods;
int (*g_write)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;
std::atomic<int64_t> g_writes{0};
std::atomic<int64_t> g_fail_at{INT64_MAX};

int Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  if (g_writes >= g_fail_at) return SQLITE_FULL;
  ++g_writes;
  return g_write(file, data, bytes, offset);
}

int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  const int code = g_real->xOpen(g_real, name, file, flags, out_flags);
  if (code == SQLITE_OK && file->pMethods != nullptr) file->pMethods = &g_methods;
  return code;
}

}  // namespace

void InstallFaultVfs() {
  if (g_real != nullptr) return;
  g_real = sqlite3_vfs_find(nullptr);
  CHECK(g_real != nullptr);
  // The methods of an ordinary file: all ordinary files share them.
  alignas(16) static char buffer[4096];
  CHECK(g_real->szOsFile <= static_cast<int>(sizeof(buffer)));
  auto* file = reinterpret_cast<sqlite3_file*>(buffer);
  const int flags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_DELETEONCLOSE | SQLITE_OPEN_TEMP_DB;
  CHECK(g_real->xOpen(g_real, nullptr, file, flags, nullptr) == SQLITE_OK);
  g_methods = *file->pMethods;
  g_write = g_methods.xWrite;
  g_methods.xWrite = Write;
  file->pMethods->xClose(file);
  g_vfs = *g_real;
  g_vfs.zName = "fault";
  g_vfs.pNext = nullptr;
  g_vfs.xOpen = Open;
  CHECK(sqlite3_vfs_register(&g_vfs, 1) == SQLITE_OK);
}

void FailAfterWrites(int64_t writes) { g_fail_at = writes < 0 ? INT64_MAX : g_writes + writes; }
int64_t WritesSoFar() { return g_writes; }

}  // namespace snapkv::service
