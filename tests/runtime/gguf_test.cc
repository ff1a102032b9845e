// SPDX-License-Identifier: Apache-2.0
// GgufFile: metadata of every type, tensors, lookups, files on disk, and what each refusal says.
#include "runtime/model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gguf_visit.h"
#include "tests/support/gguf_writer.h"

namespace snapkv::runtime {
namespace {

using snapkv::testing::GgufBytes;
using snapkv::testing::GgufWriter;
using snapkv::testing::SampleGguf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file in memory; the bytes live as long as the reader.
struct InMemory {
  explicit InMemory(const GgufWriter& writer)
      : bytes(writer.Bytes()), file(GgufFile::OpenMemory(bytes, "x.gguf")) {}
  std::vector<uint8_t> bytes;
  absl::StatusOr<GgufFile> file;
};

// The status of opening what `writer` builds.
absl::Status OpenError(const GgufWriter& writer) { return InMemory(writer).file.status(); }

template <class... Parts>
void ExpectError(const absl::Status& status, absl::StatusCode code, const Parts&... parts) {
  EXPECT_EQ(status.code(), code) << status;
  const std::string message(status.message());
  for (const std::string& part : std::vector<std::string>{parts...}) EXPECT_THAT(message, HasSubstr(part));
}

constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr auto kLost = absl::StatusCode::kDataLoss;

// ---- metadata

template <class T>
void ExpectSample(const GgufFile& file, const std::string& type, T scalar) {
  const auto got = file.Get<T>("m." + type);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, scalar) << type;
}

template <class T>
void ExpectSampleArray(const GgufFile& file, const std::string& type, T value) {
  const auto got = file.Get<std::vector<T>>("a." + type);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre(value, T(), value)) << type;
}

class GgufVersions : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(All, GgufVersions, ::testing::Values(2, 3));

TEST_P(GgufVersions, ReadsEveryMetadataType) {
  const InMemory sample(SampleGguf(GetParam()));
  ASSERT_TRUE(sample.file.ok()) << sample.file.status();
  const GgufFile& file = *sample.file;
  EXPECT_EQ(file.version(), GetParam());
  EXPECT_EQ(file.path(), "x.gguf");
  EXPECT_EQ(file.keys().size(), 26u);
  EXPECT_EQ(file.keys()[0], "m.u8");
  EXPECT_EQ(file.keys()[1], "a.u8");
  ExpectSample<bool>(file, "bool", true);
  ExpectSample<float>(file, "f32", 2.5f);
  ExpectSample<double>(file, "f64", 2.5);
  ExpectSample<float>(file, "f64", 2.5f);
  ExpectSample<double>(file, "f32", 2.5);
  ExpectSample<std::string>(file, "string", "text");
  for (const char* type : {"u8", "u16", "u32", "u64"}) {
    ExpectSample<uint32_t>(file, type, 2);
    ExpectSample<uint64_t>(file, type, 2);
    ExpectSample<int32_t>(file, type, 2);
    ExpectSample<int64_t>(file, type, 2);
    ExpectSampleArray<int32_t>(file, type, 2);
    ExpectSampleArray<int64_t>(file, type, 2);
  }
  for (const char* type : {"i8", "i16", "i32", "i64"}) {
    ExpectSample<int32_t>(file, type, -2);
    ExpectSample<int64_t>(file, type, -2);
    ExpectSampleArray<int32_t>(file, type, -2);
    ExpectSampleArray<int64_t>(file, type, -2);
    ExpectError(file.Get<uint32_t>(std::string("m.") + type).status(), kBad, "x.gguf", "m.", "range", "u32");
    ExpectError(file.Get<uint64_t>(std::string("m.") + type).status(), kBad, "out of range for u64");
  }
  ExpectSampleArray<float>(file, "f32", 2.5f);
  ExpectSampleArray<float>(file, "f64", 2.5f);
  ExpectSampleArray<std::string>(file, "string", "text");
}

TEST(Gguf, IntegerRangesAtTheirEdges) {
  const InMemory memory(GgufWriter()
                            .Add("u32max", uint64_t{0xffffffff})
                            .Add("u32over", uint64_t{0x100000000})
                            .Add("u64max", std::numeric_limits<uint64_t>::max())
                            .Add("i32min", int64_t{std::numeric_limits<int32_t>::min()})
                            .Add("i32under", int64_t{std::numeric_limits<int32_t>::min()} - 1)
                            .Add("list", std::vector<uint32_t>{1, 0x80000000}));
  ASSERT_TRUE(memory.file.ok()) << memory.file.status();
  const GgufFile& file = *memory.file;
  EXPECT_EQ(*file.Get<uint32_t>("u32max"), 0xffffffffu);
  EXPECT_EQ(*file.Get<uint64_t>("u64max"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*file.Get<int32_t>("i32min"), std::numeric_limits<int32_t>::min());
  EXPECT_THAT(*file.Get<std::vector<int64_t>>("list"), ElementsAre(1, 0x80000000));
  ExpectError(file.Get<uint32_t>("u32over").status(), kBad, "'u32over'", "range");
  ExpectError(file.Get<int64_t>("u64max").status(), kBad, "'u64max'", "range");
  ExpectError(file.Get<int32_t>("u32max").status(), kBad, "'u32max'", "range");
  ExpectError(file.Get<int32_t>("i32under").status(), kBad, "'i32under'", "range");
  ExpectError(file.Get<std::vector<int32_t>>("list").status(), kBad, "'list'", "range", "array of i32");
}

TEST(Gguf, DoubleThatNoFloatHoldsIsOutOfRange) {
  const InMemory memory(
      GgufWriter().Add("big", 1e300).Add("inf", std::numeric_limits<double>::infinity()).Add("half", 0.5));
  ASSERT_TRUE(memory.file.ok()) << memory.file.status();
  ExpectError(memory.file->Get<float>("big").status(), kBad, "'big'", "range", "f32");
  EXPECT_EQ(*memory.file->Get<double>("big"), 1e300);
  EXPECT_EQ(*memory.file->Get<float>("inf"), std::numeric_limits<float>::infinity());
  EXPECT_EQ(*memory.file->Get<float>("half"), 0.5f);
}

TEST(Gguf, WrongTypesAreNamed) {
  const InMemory sample(SampleGguf());
  ASSERT_TRUE(sample.file.ok()) << sample.file.status();
  const GgufFile& file = *sample.file;
  ExpectError(file.Get<uint32_t>("m.f32").status(), kBad, "x.gguf", "'m.f32'", "has type f32",
              "u32 is needed");
  ExpectError(file.Get<uint32_t>("m.bool").status(), kBad, "'m.bool'", "bool");
  ExpectError(file.Get<uint32_t>("a.u32").status(), kBad, "'a.u32'", "array of u32");
  ExpectError(file.Get<bool>("m.u8").status(), kBad, "'m.u8'", "bool is needed");
  ExpectError(file.Get<float>("m.u32").status(), kBad, "'m.u32'", "f32 is needed");
  ExpectError(file.Get<std::string>("m.u32").status(), kBad, "'m.u32'", "string is needed");
  ExpectError(file.Get<std::string>("a.string").status(), kBad, "'a.string'", "array of string");
  ExpectError(file.Get<std::vector<std::string>>("m.string").status(), kBad, "'m.string'");
  ExpectError(file.Get<std::vector<std::string>>("a.u8").status(), kBad, "'a.u8'",
              "array of string is needed");
  ExpectError(file.Get<std::vector<int32_t>>("a.f32").status(), kBad, "'a.f32'");
  ExpectError(file.Get<std::vector<float>>("a.u32").status(), kBad, "'a.u32'");
  ExpectError(file.Get<std::vector<int32_t>>("nested").status(), kBad, "'nested'", "array of array");
}

TEST(Gguf, MissingKeys) {
  const InMemory sample(SampleGguf());
  ASSERT_TRUE(sample.file.ok()) << sample.file.status();
  const GgufFile& file = *sample.file;
  EXPECT_TRUE(file.has("m.u8"));
  EXPECT_FALSE(file.has("m.u9"));
  EXPECT_EQ(file.value("m.u9"), nullptr);
  ExpectError(file.Get<uint32_t>("m.u9").status(), absl::StatusCode::kNotFound, "x.gguf", "'m.u9'",
              "missing");
  EXPECT_EQ(*file.GetOr<uint32_t>("m.u9", 5), 5u);
  EXPECT_EQ(*file.GetOr<uint32_t>("m.u8", 5), 2u);
  ExpectError(file.GetOr<uint32_t>("m.string", 5).status(), kBad, "'m.string'");
  EXPECT_EQ(*file.Find<uint32_t>("m.u9"), std::nullopt);
  EXPECT_EQ(**file.Find<uint32_t>("m.u8"), 2u);
  ExpectError(file.Find<uint32_t>("m.string").status(), kBad, "'m.string'");
}

TEST(Gguf, EmptyAndNestedArrays) {
  const InMemory sample(SampleGguf());
  ASSERT_TRUE(sample.file.ok()) << sample.file.status();
  EXPECT_TRUE(sample.file->Get<std::vector<std::string>>("empty")->empty());
  EXPECT_TRUE(sample.file->Get<std::vector<float>>("empty")->empty());
  const GgufValue* nested = sample.file->value("nested");
  ASSERT_NE(nested, nullptr);
  EXPECT_TRUE(nested->is_array);
  EXPECT_EQ(nested->type, GgufType::kArray);
  EXPECT_EQ(nested->count, 2u);
}

TEST(Gguf, StringsMayHoldAnything) {
  const std::string odd("a\0b\xff\xfe", 5);
  const InMemory memory(
      GgufWriter().Add("s", odd).Add("none", std::string()).Add("l", std::vector<std::string>{"", odd}));
  ASSERT_TRUE(memory.file.ok()) << memory.file.status();
  EXPECT_EQ(*memory.file->Get<std::string>("s"), odd);
  EXPECT_EQ(*memory.file->Get<std::string>("none"), "");
  EXPECT_THAT(*memory.file->Get<std::vector<std::string>>("l"), ElementsAre("", odd));
}

// ---- tensors

TEST_P(GgufVersions, ReadsEveryTensorType) {
  const InMemory sample(SampleGguf(GetParam()));
  ASSERT_TRUE(sample.file.ok()) << sample.file.status();
  EXPECT_EQ(sample.file->tensors().size(), 16u);
  for (const GgufTensor& tensor : sample.file->tensors()) {
    EXPECT_EQ(tensor.name, std::string("t.") + DTypeName(tensor.dtype()));
    EXPECT_THAT(tensor.shape(), ElementsAre(2, 256)) << tensor.name;
    EXPECT_TRUE(tensor.view.contiguous());
    EXPECT_EQ(tensor.view.bytes(), 2 * 256 / BlockElements(tensor.dtype()) * BlockBytes(tensor.dtype()));
    const auto* bytes = tensor.view.as<const uint8_t>();
    for (int64_t i = 0; i < tensor.view.bytes(); ++i) {
      ASSERT_EQ(bytes[i], static_cast<uint8_t>(i)) << tensor.name << " byte " << i;
    }
  }
}

TEST(Gguf, ShapesAreRowMajorAndValuesInPlace) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const InMemory memory(GgufWriter()
                            .AddTensor<float>("m", {2, 3}, values)
                            .AddTensor<float>("v", {6}, values)
                            .AddTensor<float>("four", {1, 2, 3, 1}, values)
                            .AddTensor<float>("scalar", {}, {7.0f}));
  ASSERT_TRUE(memory.file.ok()) << memory.file.status();
  const auto m = memory.file->tensor("m");
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->view.ToString(), "f32[2, 3]");
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j)
      EXPECT_EQ(*m->view.at<float>(i, j), static_cast<float>(3 * i + j)) << i << " " << j;
  }
  EXPECT_THAT(memory.file->tensor("v")->shape(), ElementsAre(6));
  EXPECT_THAT(memory.file->tensor("four")->shape(), ElementsAre(1, 2, 3, 1));
  EXPECT_TRUE(memory.file->tensor("scalar")->shape().empty());
  EXPECT_EQ(*memory.file->tensor("scalar")->view.as<float>(), 7.0f);
}

TEST(Gguf, MissingTensorIsNamed) {
  const InMemory sample(SampleGguf());
  ASSERT_TRUE(sample.file.ok()) << sample.file.status();
  EXPECT_TRUE(sample.file->has_tensor("t.f32"));
  EXPECT_FALSE(sample.file->has_tensor("t.f33"));
  ExpectError(sample.file->tensor("t.f33").status(), absl::StatusCode::kNotFound, "x.gguf", "'t.f33'",
              "missing");
}

TEST(Gguf, AlignmentIsHonoured) {
  for (const uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    const InMemory memory(GgufWriter()
                              .SetAlignment(alignment)
                              .AddTensor("a", DType::kF16, {3}, "aabbcc")
                              .AddTensor<float>("b", {1}, {3.0f}));
    ASSERT_TRUE(memory.file.ok()) << memory.file.status();
    EXPECT_EQ(*memory.file->tensor("b")->view.as<float>(), 3.0f) << alignment;
  }
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 0x80000001u}) {
    ExpectError(OpenError(GgufWriter().Add("general.alignment", alignment)), kLost, "'general.alignment'",
                std::to_string(alignment), "power of two");
  }
  ExpectError(OpenError(GgufWriter().Add("general.alignment", "32")), kBad, "'general.alignment'", "string");
}

TEST(Gguf, NoTensorsAndNoMetadata) {
  const InMemory memory{GgufWriter()};
  ASSERT_TRUE(memory.file.ok()) << memory.file.status();
  EXPECT_TRUE(memory.file->keys().empty());
  EXPECT_TRUE(memory.file->tensors().empty());
}

// ---- refusals

TEST(GgufRefuses, TensorTypesByName) {
  ExpectError(OpenError(GgufWriter().AddRawTensor("w", {256}, 16, 0, std::string(66, 'x'))), kBad, "x.gguf",
              "tensor 'w'", "IQ2_XXS", "ggml type 16", "Q4_K");
  ExpectError(OpenError(GgufWriter().AddRawTensor("w", {256}, 39, 0, "")), kBad, "MXFP4", "ggml type 39");
  ExpectError(OpenError(GgufWriter().AddRawTensor("w", {256}, 4, 0, "")), kBad, "Q4_2", "ggml type 4");
  ExpectError(OpenError(GgufWriter().AddRawTensor("w", {256}, 1000, 0, "")), kBad, "unknown",
              "ggml type 1000");
  ExpectError(OpenError(GgufWriter().AddRawTensor("w", {256}, 0xffffffff, 0, "")), kBad,
              "ggml type 4294967295");
}

TEST(GgufRefuses, Versions) {
  ExpectError(OpenError(GgufWriter(0)), kBad, "x.gguf", "version 0");
  ExpectError(OpenError(GgufWriter(1)), kBad, "x.gguf", "version 1", "convert");
  ExpectError(OpenError(GgufWriter(4)), kBad, "version 4");
  ExpectError(OpenError(GgufWriter(0x03000000)), kBad, "big-endian");
}

TEST(GgufRefuses, WhatIsNotGguf) {
  for (const std::string text : {"GGML", "GGU", "G", "{\"a\": 1}", "PK\x03\x04"}) {
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    ExpectError(GgufFile::OpenMemory(bytes, "x.gguf").status(), kBad, "x.gguf", "not a GGUF file");
  }
  const std::vector<uint8_t> big = {'F', 'U', 'G', 'G', 0, 0, 0, 3};
  ExpectError(GgufFile::OpenMemory(big, "x.gguf").status(), kBad, "big-endian");
  ExpectError(GgufFile::OpenMemory({}, "x.gguf").status(), kLost, "x.gguf", "empty");
}

TEST(GgufRefuses, UnalignedMemory) {
  std::vector<uint8_t> bytes = SampleGguf().Bytes();
  bytes.insert(bytes.begin(), 0);
  ExpectError(GgufFile::OpenMemory(absl::MakeConstSpan(bytes).subspan(1), "x.gguf").status(), kBad, "x.gguf",
              "aligned");
}

TEST(GgufRefuses, SplitFiles) {
  ExpectError(OpenError(GgufWriter().Add("split.count", uint16_t{3})), kBad, "x.gguf", "split.count",
              "3 parts", "gguf-split --merge");
  EXPECT_TRUE(OpenError(GgufWriter().Add("split.count", uint16_t{1})).ok());
  EXPECT_TRUE(OpenError(GgufWriter().Add("split.count", uint16_t{0})).ok());
  ExpectError(OpenError(GgufWriter().Add("split.count", "3")), kBad, "split.count");
}

TEST(GgufRefuses, Duplicates) {
  ExpectError(OpenError(GgufWriter().Add("k", 1).Add("j", 2).Add("k", 1.0f)), kLost, "key 'k'", "twice");
  ExpectError(OpenError(GgufWriter().AddTensor<float>("t", {1}, {1}).AddTensor<float>("t", {1}, {1})), kLost,
              "tensor 't'", "twice");
}

TEST(GgufRefuses, HugeCounts) {
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  for (const uint64_t count : {kHuge, kHuge / 2, kHuge / 25 + 1, uint64_t{1} << 32, uint64_t{2}}) {
    ExpectError(OpenError(GgufWriter().Add("k", uint8_t{1}).SetCounts(0, count)), kLost, "x.gguf");
    ExpectError(OpenError(GgufWriter().AddTensor<float>("t", {1}, {1}).SetCounts(count, 0)), kLost, "x.gguf");
  }
  const std::string huge = GgufBytes(kHuge);
  // A string's length, an array's, and that of a string in an array.
  ExpectError(OpenError(GgufWriter().AddRaw("k", 8, huge)), kLost, "key 'k'", "truncated");
  for (uint32_t type = 0; type < kGgufTypes; ++type) {
    for (const uint64_t count : {kHuge, kHuge / 2 + 1, kHuge / 4 + 1, kHuge / 8 + 1, uint64_t{1} << 40}) {
      ExpectError(OpenError(GgufWriter().AddRaw("k", 9, GgufBytes(type) + GgufBytes(count) + huge)), kLost,
                  "key 'k'", "array");
    }
  }
  ExpectError(OpenError(GgufWriter().AddRaw("k", 9, GgufBytes(uint32_t{8}) + GgufBytes(uint64_t{1}) + huge)),
              kLost, "key 'k'", "truncated");
}

TEST(GgufRefuses, BadMetadata) {
  ExpectError(OpenError(GgufWriter().AddRaw("k", 13, "12345678")), kLost, "key 'k'", "type 13");
  ExpectError(OpenError(GgufWriter().AddRaw("k", 9, GgufBytes(uint32_t{99}) + GgufBytes(uint64_t{0}))), kLost,
              "key 'k'", "type 99");
  ExpectError(OpenError(GgufWriter().AddRaw("k", 7, "\2")), kLost, "key 'k'", "bool");
  ExpectError(
      OpenError(GgufWriter().AddRaw("k", 9, GgufBytes(uint32_t{7}) + GgufBytes(uint64_t{2}) + "\1\3")), kLost,
      "key 'k'", "bool");
  ExpectError(OpenError(GgufWriter().Add("", 1)), kLost, "number 0", "empty");
  ExpectError(OpenError(GgufWriter().Add(std::string(65536, 'k'), 1)), kLost, "number 0", "65536");
  EXPECT_TRUE(OpenError(GgufWriter().Add(std::string(65535, 'k'), 1)).ok());
}

// An array of an array of ... of one u8, `depth` levels.
std::string Nested(int depth) {
  if (depth == 1) return GgufBytes(uint32_t{0}) + GgufBytes(uint64_t{1}) + "\1";
  return GgufBytes(uint32_t{9}) + GgufBytes(uint64_t{1}) + Nested(depth - 1);
}

TEST(GgufRefuses, DeepNesting) {
  EXPECT_TRUE(OpenError(GgufWriter().AddRaw("k", 9, Nested(4))).ok());
  ExpectError(OpenError(GgufWriter().AddRaw("k", 9, Nested(5))), kBad, "key 'k'", "nest");
  ExpectError(OpenError(GgufWriter().AddRaw("k", 9, Nested(2000))), kBad, "key 'k'", "nest");
}

TEST(GgufRefuses, BadShapes) {
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {1, 1, 1, 1, 1}, 0, 0, "abcd")), kLost, "tensor 't'",
              "5 dimensions");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {0}, 0, 0, "abcd")), kLost, "tensor 't'", "size 0");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {~uint64_t{0}}, 0, 0, "abcd")), kLost, "tensor 't'",
              "size -1");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0, "abcd")),
              kLost, "tensor 't'", "2^63");
  // The elements fit 63 bits but the bytes do not fit 64; 2^62 f32 wrap round to 0 bytes.
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {uint64_t{1} << 62}, 0, 0, "abcd")), kLost,
              "tensor 't'", "2^64");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {uint64_t{1} << 61}, 0, 0, "abcd")), kLost,
              "tensor 't'", "end of the file");
}

TEST(GgufRefuses, RowsThatAreNoBlocks) {
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {48, 2}, 2, 0, std::string(54, 'x'))), kLost,
              "tensor 't'", "48", "32", "Q4_0");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {128, 2}, 12, 0, std::string(144, 'x'))), kLost,
              "tensor 't'", "128", "256", "Q4_K");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {}, 2, 0, std::string(18, 'x'))), kLost, "tensor 't'");
}

TEST(GgufRefuses, BadOffsets) {
  const std::string data(128, 'x');
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {1}, 0, 4, data)), kLost, "tensor 't'", "offset 4",
              "32");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {1}, 0, 128, data)), kLost, "tensor 't'",
              "end of the file");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {25}, 0, 32, data)), kLost, "tensor 't'",
              "end of the file");
  EXPECT_TRUE(OpenError(GgufWriter().AddRawTensor("t", {24}, 0, 32, data)).ok());
  // Offsets whose sum with the start of the data, or with the size, wraps round.
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {1}, 0, ~uint64_t{31}, data)), kLost, "tensor 't'",
              "end of the file");
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {64}, 0, ~uint64_t{0} / 32 * 32 - 192, data)), kLost,
              "tensor 't'", "end of the file");
  // No data section at all.
  ExpectError(OpenError(GgufWriter().AddRawTensor("t", {1}, 0, 0, "")), kLost, "tensor 't'",
              "end of the file");
}

TEST(GgufRefuses, Overlaps) {
  const std::string data(128, 'x');
  ExpectError(OpenError(GgufWriter().AddRawTensor("a", {9}, 0, 0, data).AddRawTensor("b", {1}, 0, 32)), kLost,
              "tensor 'b'", "overlaps", "'a'");
  ExpectError(OpenError(GgufWriter().AddRawTensor("a", {1}, 0, 32, data).AddRawTensor("b", {9}, 0, 0)), kLost,
              "tensor 'a'", "overlaps", "'b'");
  ExpectError(OpenError(GgufWriter().AddRawTensor("a", {8}, 0, 0, data).AddRawTensor("b", {8}, 0, 0)), kLost,
              "overlaps");
  // Neighbours, gaps and any order are fine.
  EXPECT_TRUE(OpenError(GgufWriter().AddRawTensor("a", {8}, 0, 96, data).AddRawTensor("b", {8}, 0, 0)).ok());
  EXPECT_TRUE(OpenError(GgufWriter().AddRawTensor("a", {8}, 0, 0, data).AddRawTensor("b", {8}, 0, 32)).ok());
}

TEST(GgufRefuses, BadNames) {
  ExpectError(OpenError(GgufWriter().AddTensor<float>("", {1}, {1})), kLost, "tensor number 0", "empty");
  ExpectError(OpenError(GgufWriter().AddTensor<float>(std::string(65, 't'), {1}, {1})), kLost,
              "tensor number 0", "65");
  EXPECT_TRUE(OpenError(GgufWriter().AddTensor<float>(std::string(64, 't'), {1}, {1})).ok());
  // Control characters do not reach the terminal.
  const absl::Status status = OpenError(GgufWriter().Add("a\x1b[2J\n", 1).Add("a\x1b[2J\n", 1));
  ExpectError(status, kLost, "\\x1b[2J\\n");
  // Long names are shortened.
  EXPECT_LT(OpenError(GgufWriter().AddRaw(std::string(60000, 'k'), 13, "")).message().size(), 300u);
}

// ---- files

class GgufOnDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/gguf_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr) << pattern;
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(GgufOnDisk, ViewsSurviveMoves) {
  const std::string path = folder_ + "/a.gguf";
  ASSERT_TRUE(GgufWriter().Add("k", 1).AddTensor<float>("t", {2}, {1.5f, 2.5f}).Write(path));
  auto opened = GgufFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto tensor = opened->tensor("t");
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  auto other = GgufFile::Open(path);
  ASSERT_TRUE(other.ok()) << other.status();
  *other = *std::move(opened);
  GgufFile file = *std::move(other);
  ASSERT_EQ(::unlink(path.c_str()), 0);  // the mapping keeps the file
  EXPECT_EQ(tensor->view.as<float>()[1], 2.5f);
  EXPECT_EQ(file.tensor("t")->view.data, tensor->view.data);
  EXPECT_EQ(*file.Get<int32_t>("k"), 1);
  EXPECT_EQ(file.path(), path);
  static_assert(!std::is_copy_constructible_v<GgufFile> && !std::is_copy_assignable_v<GgufFile>);
}

TEST_F(GgufOnDisk, OpensAndClosesWithoutLeaks) {
  const std::string path = folder_ + "/a.gguf";
  ASSERT_TRUE(SampleGguf().Write(path));
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = descriptors();
  for (int i = 0; i < 100; ++i) {
    const auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_GT(snapkv::testing::VisitGguf(*file), 0u);
    EXPECT_EQ(descriptors(), before);  // the mapping needs no descriptor
  }
}

TEST_F(GgufOnDisk, WhatCannotBeOpened) {
  ExpectError(GgufFile::Open(folder_ + "/none.gguf").status(), absl::StatusCode::kNotFound,
              folder_ + "/none.gguf");
  ExpectError(GgufFile::Open(folder_).status(), kBad, folder_, "directory");
  ExpectError(GgufFile::Open("").status(), absl::StatusCode::kNotFound, "no such file");
  ExpectError(GgufFile::Open("/dev/null").status(), kBad, "/dev/null", "regular");
  const std::string fifo = folder_ + "/fifo.gguf", empty = folder_ + "/empty.gguf", file = folder_ + "/file";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ExpectError(GgufFile::Open(fifo).status(), kBad, fifo, "regular");
  std::ofstream(empty).close();
  ExpectError(GgufFile::Open(empty).status(), kLost, empty, "empty");
  std::ofstream(file) << "hello";
  ExpectError(GgufFile::Open(file).status(), kBad, file, "not a GGUF file", "hell");
  ExpectError(GgufFile::Open(file + "/x").status(), absl::StatusCode::kNotFound, file + "/x");
}

TEST_F(GgufOnDisk, NoPermission) {
  const std::string path = folder_ + "/secret.gguf";
  ASSERT_TRUE(SampleGguf().Write(path));
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  // Root may read everything: become nobody for the attempt.
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "root cannot drop its privileges here";
  const absl::Status status = GgufFile::Open(path).status();
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ExpectError(status, absl::StatusCode::kPermissionDenied, path, "permission denied");
}

// The default model, when the set-up script has fetched it.
TEST(GgufModel, SmolLm2) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string path =
      (cache != nullptr ? std::string(cache) : std::string(home != nullptr ? home : "") + "/.cache") +
      "/snapkv/models/smollm2.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing; launch/setup.sh fetches it";
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->keys().size(), 33u);
  EXPECT_EQ(file->tensors().size(), 272u);
  EXPECT_EQ(*file->Get<std::string>("general.architecture"), "llama");
  EXPECT_EQ(*file->Get<uint32_t>("llama.block_count"), 30u);
  EXPECT_EQ(*file->Get<int64_t>("llama.attention.head_count_kv"), 3);
  EXPECT_EQ(*file->Get<float>("llama.rope.freq_base"), 100000.0f);
  EXPECT_EQ(*file->Get<float>("llama.attention.layer_norm_rms_epsilon"), 1e-5f);
  EXPECT_FALSE(*file->Get<bool>("tokenizer.ggml.add_bos_token"));
  const auto tokens = file->Get<std::vector<std::string>>("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens->size(), 49152u);
  EXPECT_EQ((*tokens)[1], "<|im_start|>");
  EXPECT_EQ(file->Get<std::vector<int32_t>>("tokenizer.ggml.token_type")->size(), 49152u);
  EXPECT_EQ(file->tensor("token_embd.weight")->view.ToString(), "q8_0[49152, 576]");
  EXPECT_EQ(file->tensor("blk.29.ffn_down.weight")->view.ToString(), "q4_1[576, 1536]");
  EXPECT_EQ(file->tensor("output_norm.weight")->view.ToString(), "f32[576]");
  EXPECT_FALSE(file->has_tensor("output.weight"));
}

}  // namespace
}  // namespace snapkv::runtime
