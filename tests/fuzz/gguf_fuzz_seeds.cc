// SPDX-License-Identifier: Apache-2.0
// Writes seed files for gguf_fuzz: small valid files of both versions and shapes that single mutations rarely
// reach.
#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

int main(int argc, char** argv) {
  using snapkv::DType;
  using snapkv::testing::GgufWriter;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  GgufWriter aligned;
  aligned.SetAlignment(8).Add("split.count", uint16_t{1});
  aligned.AddTensor("a", DType::kQ4_0, {32}, std::string(18, '\1'));
  aligned.AddTensor("b", DType::kF16, {1, 2, 3, 4}, std::string(48, '\2'));
  const std::vector<GgufWriter> seeds = {GgufWriter(), snapkv::testing::SampleGguf(2),
                                         snapkv::testing::SampleGguf(3), aligned};
  for (size_t i = 0; i < seeds.size(); ++i) {
    const std::string path = std::string(argv[1]) + "/seed" + std::to_string(i) + ".gguf";
    if (!seeds[i].Write(path)) {
      std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
