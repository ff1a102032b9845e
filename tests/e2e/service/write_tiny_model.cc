// SPDX-License-Identifier: Apache-2.0
// Writes the tiny random text model of the tests to a file, for tests that are no C++ programs.
#include <cstdio>
#include <fstream>
#include <string>

#include "runtime/model/gguf.h"
#include "tests/e2e/prefill_program.h"

namespace snapkv::testing {
namespace {

// A model that makes numbers of every text but those with a 'Z' in them.
bool SpoilZ(const std::string& path) {
  std::string bytes = Slurp(path);
  const auto file = runtime::GgufFile::Open(path);
  if (!file.ok()) return false;
  const auto embedding = file->tensor("token_embd.weight");
  if (!embedding.ok()) return false;
  const size_t row = static_cast<size_t>(SmallOptions().hidden) * sizeof(float);
  const size_t at = bytes.find(std::string(embedding->view.as<char>() + 'Z' * row, row));
  if (at == std::string::npos) return false;
  for (size_t i = 0; i < row; i += 4) bytes.replace(at + i, 4, "\x00\x00\xc0\x7f", 4);
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  return static_cast<bool>(out.flush());
}

}  // namespace
}  // namespace snapkv::testing

// write_tiny_model PATH [nan]
int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: write_tiny_model PATH [nan]\n");
    return 2;
  }
  using namespace snapkv::testing;
  const bool ok = TinyTextGguf(SmallOptions()).Write(argv[1]) && (argc == 2 || SpoilZ(argv[1]));
  if (!ok) std::fprintf(stderr, "cannot write %s\n", argv[1]);
  return ok ? 0 : 1;
}
