// SPDX-License-Identifier: Apache-2.0
// One Tokenizer, used by several threads at once: a reader encodes while generation decodes.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "runtime/text/stream_decoder.h"
#include "runtime/text/tokenizer.h"
#include "tests/runtime/tiny_vocabulary.h"

namespace snapkv::runtime {
namespace {

std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(&tokenizer);
  std::string text;
  for (const int32_t id : ids) text += decoder.Append(id).value();
  return text + decoder.Flush();
}

TEST(TokenizerThreads, EncodeAndDecodeAtTheSameTime) {
  for (const char* pre : {"smollm", "llama-bpe", "qwen2"}) {
    const auto tokenizer = Tokenizer::Create(TinyVocabulary(pre));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::vector<std::string> texts;
    for (const char* unit : {"hello a\xCC\x81 12 ", "aa", "<|im_end|>b", " \n", "it's 7\xE2\x82\xAC"}) {
      std::string text;
      while (text.size() < 8000) text += unit;
      texts.push_back(text);
    }
    std::vector<std::vector<int32_t>> ids;
    std::vector<std::string> decoded;
    for (const std::string& text : texts) {
      ids.push_back(tokenizer->Encode(text, true).value());
      decoded.push_back(Stream(*tokenizer, ids.back()));
    }
    std::vector<std::string> failures(4);  // one per thread
    std::vector<std::thread> threads;
    for (size_t t = 0; t < failures.size(); ++t) {
      threads.emplace_back([&, t] {
        for (size_t round = 0; round < 20; ++round) {
          const size_t i = (round + t) % texts.size();
          const bool same = t % 2 == 0 ? tokenizer->Encode(texts[i], true).value() == ids[i]
                                       : Stream(*tokenizer, ids[i]) == decoded[i];
          if (!same) failures[t] += " text " + std::to_string(i) + " in round " + std::to_string(round);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t t = 0; t < failures.size(); ++t) EXPECT_EQ(failures[t], "") << pre << ", thread " << t;
  }
}

}  // namespace
}  // namespace snapkv::runtime
