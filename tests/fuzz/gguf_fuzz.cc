// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes either fail to open as GGUF with a message, or can be read completely.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target gguf_fuzz gguf_fuzz_seeds
//   mkdir -p /tmp/seeds && build/fuzz/tests/fuzz/gguf_fuzz_seeds /tmp/seeds
//   build/fuzz/tests/fuzz/gguf_fuzz -max_total_time=60 -max_len=32768 /tmp/seeds
#include <cstdint>
#include <cstdlib>

#include "runtime/model/gguf.h"
#include "tests/support/gguf_visit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = snapkv::runtime::GgufFile::OpenMemory({data, size}, "fuzz.gguf");
  if (!file.ok()) {
    if (file.status().message().find("fuzz.gguf") == absl::string_view::npos) std::abort();
    return 0;
  }
  // Values other than 0 and -1 are reserved to libFuzzer.
  return snapkv::testing::VisitGguf(*file) == UINT64_MAX ? -1 : 0;
}
