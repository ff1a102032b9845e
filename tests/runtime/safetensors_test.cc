// SPDX-License-Identifier: Apache-2.0
// Safetensors: written files read back bit for bit, and every kind of damaged file is an error that names its
// fault.
#include "runtime/model/safetensors.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snapkv::runtime {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "safetensors_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  // A file with the given header text and data; `header_bytes` overrides the length field.
  std::string Write(const std::string& header, const std::string& data, int64_t header_bytes = -1) {
    const uint64_t n = header_bytes < 0 ? header.size() : static_cast<uint64_t>(header_bytes);
    std::string all(reinterpret_cast<const char*>(&n), 8);
    return WriteBytes(all + header + data);
  }
  std::string WriteBytes(const std::string& all) {
    const std::string path = Path(absl::StrCat("f", count_++, ".safetensors"));
    std::ofstream(path, std::ios::binary) << all;
    return path;
  }
  static std::string ReadBytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  // Opening must fail with DATA_LOSS, name the file and say `what`.
  void ExpectDamaged(const std::string& path, const std::string& what) {
    const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    ASSERT_FALSE(file.ok()) << what;
    EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << file.status();
    EXPECT_THAT(std::string(file.status().message()), AllOf(HasSubstr(path), HasSubstr(what)));
  }
  void ExpectDamagedHeader(const std::string& header, const std::string& data, const std::string& what) {
    SCOPED_TRACE(header.substr(0, 200));
    ExpectDamaged(Write(header, data), what);
  }

  std::filesystem::path folder_;
  int count_ = 0;
};

constexpr char kGood[] =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";

template <class T>
std::vector<T> Values(const TensorView& v) {
  EXPECT_EQ(v.dtype, DTypeOf<T>);
  return std::vector<T>(v.as<T>(), v.as<T>() + v.elements());
}

TEST_F(SafetensorsTest, ReadsAHandWrittenFile) {
  const float values[] = {1.5f, -2.0f};
  std::string data(reinterpret_cast<const char*>(values), 8);
  data += "\x01\x02\xff";
  const std::string path = Write(kGood, data);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path(), path);
  EXPECT_THAT(file->names(), ElementsAre("a", "b"));
  EXPECT_TRUE(file->contains("a"));
  EXPECT_FALSE(file->contains("c"));
  const auto a = file->tensor("a"), b = file->tensor("b");
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(a->ToString(), "f32[2]");
  EXPECT_EQ(b->ToString(), "u8[3]");
  EXPECT_THAT(Values<float>(*a), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(Values<uint8_t>(*b), ElementsAre(1, 2, 255));
}

TEST_F(SafetensorsTest, AMissingTensorIsNamed) {
  const auto file = SafetensorsFile::Open(Write(kGood, std::string(11, 'x')));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto missing = file->tensor("model.norm\n");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("'model.norm\\n'"), HasSubstr(file->path())));
}

TEST_F(SafetensorsTest, RoundTripOfEveryDTypeShapeAndSpecialValue) {
  const float f32[] = {0.0f,
                       -0.0f,
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::denorm_min()};
  const double f64[] = {1.0 / 3, -1e300};
  const F16 f16[] = {{0x3c00}, {0x7e01}, {0x0001}};
  const Bf16 bf16[] = {{0x3f80}, {0x7fc1}};
  const int32_t i32[] = {std::numeric_limits<int32_t>::min(), 7};
  const int64_t i64[] = {std::numeric_limits<int64_t>::max()};
  const uint8_t u8[] = {0, 255, 3};
  const auto view = [](const auto* data, auto... dims) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(data)>>;
    return TensorView::Of(const_cast<T*>(data), DTypeOf<T>, Device::kCpu, dims...);
  };
  const std::vector<std::pair<std::string, TensorView>> tensors = {
      {"bytes", view(u8, 3)},          {"half", view(f16, 3, 1)},  {"brain", view(bf16, 1, 2)},
      {"ints", view(i32, 1, 1, 2, 1)}, {"long", view(i64)},        {"float", view(f32, 2, 3)},
      {"double", view(f64, 2)},        {"empty", view(f32, 3, 0)}, {"größe \"quoted\" \\", view(u8, 1)},
  };
  SafetensorsWriter writer;
  for (const auto& [name, v] : tensors) ASSERT_TRUE(writer.Add(name, v).ok()) << name;
  const std::string path = Path("all.safetensors");
  ASSERT_TRUE(writer.Write(path).ok()) << writer.Write(path);

  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->names().size(), tensors.size());
  for (const auto& [name, want] : tensors) {
    const auto got = file->tensor(name);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->ToString(), want.ToString()) << name;
    EXPECT_TRUE(got->contiguous()) << name;
    EXPECT_EQ(std::memcmp(got->data, want.data, static_cast<size_t>(want.bytes())), 0) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got->data) % static_cast<uintptr_t>(BlockBytes(want.dtype)), 0u)
        << name;
  }
}

TEST_F(SafetensorsTest, AFileWithoutTensorsIsLegal) {
  const std::string path = Path("none.safetensors");
  ASSERT_TRUE(SafetensorsWriter().Write(path).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->names().empty());
}

TEST_F(SafetensorsTest, MetadataIsSkippedAndPaddingAccepted) {
  const auto file = SafetensorsFile::Open(Write(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}    )", "x"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->names(), ElementsAre("a"));
}

// A file whose header is not padded: the view must be aligned all the same, or reading it as float is
// undefined.
TEST_F(SafetensorsTest, MisalignedTensorsAreCopiedOnce) {
  std::string header =
      R"({"a":{"dtype":"F64","shape":[2],"data_offsets":[1,17]},"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  while (header.size() % 8 != 0) header += ' ';
  const double values[] = {3.25, -1.0};
  const auto file =
      SafetensorsFile::Open(Write(header, "u" + std::string(reinterpret_cast<const char*>(values), 16)));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<void*> seen(8);
  std::vector<std::thread> threads;
  for (void*& data : seen) threads.emplace_back([&] { data = file->tensor("a")->data; });
  for (std::thread& t : threads) t.join();
  for (const void* data : seen) EXPECT_EQ(data, seen[0]);
  const auto a = file->tensor("a");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data) % 8, 0u);
  EXPECT_THAT(Values<double>(*a), ElementsAre(3.25, -1.0));
}

TEST_F(SafetensorsTest, AMovedFileKeepsItsData) {
  auto file = SafetensorsFile::Open(Write(kGood, std::string(8, '\0') + "abc"));
  ASSERT_TRUE(file.ok());
  const void* before = file->tensor("b")->data;
  const SafetensorsFile moved = *std::move(file);
  EXPECT_EQ(moved.tensor("b")->data, before);
  EXPECT_THAT(Values<uint8_t>(*moved.tensor("b")), ElementsAre('a', 'b', 'c'));
}

TEST_F(SafetensorsTest, UnsupportedDTypeOrRankIsNamedWhenAsked) {
  const auto file = SafetensorsFile::Open(Write(
      R"({"i":{"dtype":"I16","shape":[1],"data_offsets":[0,2]},"r":{"dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[2,3]}})",
      "xyz"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto i = file->tensor("i"), r = file->tensor("r");
  EXPECT_EQ(i.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(i.status().message()),
              AllOf(HasSubstr("'i'"), HasSubstr("I16"), HasSubstr(file->path())));
  EXPECT_EQ(r.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(r.status().message()), AllOf(HasSubstr("'r'"), HasSubstr("[1, 1, 1, 1, 1]")));
}

TEST_F(SafetensorsTest, UnreadablePathsAreNamed) {
  const std::string absent = Path("absent.safetensors");
  const auto missing = SafetensorsFile::Open(absent);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(absent));
  EXPECT_THAT(std::string(SafetensorsFile::Open(folder_.string()).status().message()),
              AllOf(HasSubstr(folder_.string()), HasSubstr("is a directory")));
  const std::string fifo = Path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(std::string(SafetensorsFile::Open(fifo).status().message()), HasSubstr("not a regular file"));
}

TEST_F(SafetensorsTest, EveryTruncationIsAnError) {
  const std::string whole = ReadBytes(Write(kGood, std::string(11, 'x')));
  for (size_t n = 0; n < whole.size(); ++n) {
    SCOPED_TRACE(n);
    ExpectDamaged(WriteBytes(whole.substr(0, n)), "");
  }
  ExpectDamaged(WriteBytes(whole + "x"), "data section has 12 bytes, but its tensors end at 11");
}

// Whatever byte is overwritten by whatever value: an error or a file whose tensors lie inside it, never a
// crash.
TEST_F(SafetensorsTest, EveryOverwrittenHeaderByteIsSurvived) {
  const std::string whole = ReadBytes(Write(kGood, std::string(11, 'x')));
  int opened = 0, refused = 0;
  for (size_t at = 0; at + 11 < whole.size(); ++at) {
    for (const char value : {'\0', '\xff', '"', '{', '}', ']', '0', '9', '-', 'e', ' '}) {
      std::string bytes = whole;
      bytes[at] = value;
      const std::string path = Path("flip.safetensors");
      std::ofstream(path, std::ios::binary) << bytes;
      const auto file = SafetensorsFile::Open(path);
      file.ok() ? ++opened : ++refused;
      if (!file.ok()) continue;
      for (const std::string& name : file->names()) {
        const auto t = file->tensor(name);
        if (t.ok()) {
          EXPECT_LE(t->bytes(), 11) << "byte " << at << " value " << int{value};
        }
      }
    }
  }
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, opened);
}

TEST_F(SafetensorsTest, HostileHeaderLengths) {
  const std::string data(11, 'x');
  ExpectDamaged(Write(kGood, data, 100'000'001), "more than the format's limit");
  ExpectDamaged(Write(kGood, data, std::numeric_limits<int64_t>::max()), "more than the format's limit");
  ExpectDamaged(WriteBytes(std::string(8, '\xff') + kGood + data), "18446744073709551615 bytes");
  ExpectDamaged(Write(kGood, data, 5'000), "but the file has only");
  ExpectDamaged(Write(kGood, data, 0), "not JSON");
  ExpectDamaged(Write(kGood, data, 10), "not JSON");
}

TEST_F(SafetensorsTest, MalformedHeaders) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  ExpectDamagedHeader("[]", "", "not a JSON object");
  ExpectDamagedHeader("not json", "", "not JSON");
  ExpectDamagedHeader("{\"\xff\xfe\":" + entry + "}", "x", "not JSON");
  ExpectDamagedHeader(R"({"a":)" + entry + R"(,"a":)" + entry + "}", "x", "'a' occurs twice");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x",
                      "'dtype' occurs twice");
  ExpectDamagedHeader(R"({"a":1})", "x", "not an object");
  ExpectDamagedHeader(R"({"a":{}})", "x", "no 'dtype'");
  ExpectDamagedHeader(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", "x", "no 'dtype'");
  ExpectDamagedHeader(R"({"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,1]}})", "x",
                      "dtype 'Q9' is unknown");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x", "no 'shape'");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", "x",
                      "'shape' is not an array");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x", "'shape' holds");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "x", "'shape' holds");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", "x", "'shape' holds");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", "x",
                      "'shape' holds");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":[1]}})", "x", "no 'data_offsets'");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "x", "not a range");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", "x", "not a range");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "x", "not a range");
  ExpectDamagedHeader(R"({"__metadata__":[]})", "", "__metadata__ is not an object");
  ExpectDamagedHeader(R"({"__metadata__":{"k":1}})", "", "__metadata__ entry 'k'");
  ExpectDamagedHeader(R"({"a":{"dtype":"U8","shape":[[[1]]],"data_offsets":[0,1]}})", "x",
                      "nested too deeply");
}

TEST_F(SafetensorsTest, NestingOfAMillionLevelsIsAnError) {
  ExpectDamagedHeader(R"({"a":)" + std::string(1'000'000, '['), "", "not JSON");
  ExpectDamagedHeader(R"({"a":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}", "",
                      "nested too deeply");
}

TEST_F(SafetensorsTest, SizesAndRangesThatDoNotFit) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  ExpectDamagedHeader(one("F32", "[2]", "[0,4]"), "1234", "needs 8 bytes");
  ExpectDamagedHeader(one("F32", "[2]", "[0,8]"), "1234", "data ends at byte 8 of a data section of 4");
  ExpectDamagedHeader(one("U8", "[2]", "[0,9223372036854775807]"), "12", "needs 2 bytes");
  // 2^32 * 2^32 elements, and one element more than INT64_MAX bytes can hold.
  ExpectDamagedHeader(one("U8", "[4294967296,4294967296]", "[0,0]"), "", "more than 2^63 bytes");
  ExpectDamagedHeader(one("F32", "[2305843009213693952]", "[0,0]"), "", "more than 2^63 bytes");
  ExpectDamagedHeader(one("F32", "[0,9223372036854775807]", "[0,0]"), "", "more than 2^63 bytes");
  ExpectDamagedHeader(one("U8", "[1]", "[1,2]"), "12", "begins at byte 1");
}

TEST_F(SafetensorsTest, OverlapsAndHoles) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_TRUE(SafetensorsFile::Open(Write(two("[4,8]", "[0,4]"), "12345678")).ok());
  ExpectDamagedHeader(two("[0,4]", "[2,6]"), "123456",
                      "tensor 'b': its data begins at byte 2, inside the tensor before it");
  ExpectDamagedHeader(two("[0,4]", "[0,4]"), "1234", "inside the tensor before it");
  ExpectDamagedHeader(two("[0,4]", "[5,9]"), "123456789",
                      "begins at byte 5, but the tensor before it ends at 4");
  ExpectDamagedHeader(two("[1,5]", "[5,9]"), "123456789", "tensor 'a': its data begins at byte 1");
}

TEST_F(SafetensorsTest, WriterRefusesWhatTheFormatCannotHold) {
  float data[8] = {};
  const TensorView good = TensorView::Of(data, DType::kF32, Device::kCpu, 2, 4);
  SafetensorsWriter writer;
  EXPECT_TRUE(writer.Add("x", good).ok());
  EXPECT_THAT(std::string(writer.Add("x", good).message()), HasSubstr("'x' was added twice"));
  EXPECT_EQ(writer.Add("", good).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer.Add("__metadata__", good).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(writer.Add("\xff", good).message()), HasSubstr("UTF-8"));
  EXPECT_THAT(std::string(writer.Add("t", good.Transposed(0, 1)).message()),
              AllOf(HasSubstr("'t'"), HasSubstr("not contiguous")));
  EXPECT_THAT(std::string(writer.Add("q", TensorView::Of(data, DType::kQ8_0, Device::kCpu, 32)).message()),
              AllOf(HasSubstr("'q'"), HasSubstr("q8_0")));
}

TEST_F(SafetensorsTest, TheSameCallsGiveTheSameBytes) {
  const double d[] = {1, 2};
  const uint8_t u[] = {1};
  std::string first;
  for (int i = 0; i < 2; ++i) {
    SafetensorsWriter writer;
    ASSERT_TRUE(writer.Add("z", TensorView::Of(const_cast<uint8_t*>(u), DType::kU8, Device::kCpu, 1)).ok());
    ASSERT_TRUE(writer.Add("a", TensorView::Of(const_cast<double*>(d), DType::kF64, Device::kCpu, 2)).ok());
    const std::string path = Path("same.safetensors");
    ASSERT_TRUE(writer.Write(path).ok());
    if (i == 0) {
      first = ReadBytes(path);
    } else {
      EXPECT_EQ(ReadBytes(path), first);
    }
  }
  EXPECT_EQ((first.size() - 17) % 8, 0u) << "the data section is not aligned to 8 bytes";
}

TEST_F(SafetensorsTest, WriteReplacesAtOnceAndLeavesNothingBehind) {
  const uint8_t u[] = {9};
  SafetensorsWriter writer;
  ASSERT_TRUE(writer.Add("u", TensorView::Of(const_cast<uint8_t*>(u), DType::kU8, Device::kCpu, 1)).ok());
  const std::string path = Path("target.safetensors"), link = Path("link.safetensors");
  std::ofstream(path) << "old";
  std::filesystem::create_symlink(path, link);
  ASSERT_TRUE(writer.Write(link).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(Values<uint8_t>(*file->tensor("u")), ElementsAre(9));

  const absl::Status to_folder = writer.Write(folder_.string());
  EXPECT_THAT(std::string(to_folder.message()),
              AllOf(HasSubstr(folder_.string()), HasSubstr("not a regular file")));
  EXPECT_THAT(std::string(writer.Write("/dev/null").message()), HasSubstr("not a regular file"));
  const std::string absent = Path("absent/x.safetensors");
  EXPECT_THAT(std::string(writer.Write(absent).message()),
              AllOf(HasSubstr(absent), HasSubstr("No such file")));
  std::vector<std::string> left;
  for (const auto& e : std::filesystem::directory_iterator(folder_)) left.push_back(e.path().filename());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("target.safetensors", "link.safetensors"));
}

TEST_F(SafetensorsTest, AFullDiskIsAnErrorAndTheOldFileStays) {
  const rlim_t kLimit = 4096;
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const std::vector<uint8_t> big(100'000);
  SafetensorsWriter writer;
  ASSERT_TRUE(
      writer
          .Add("big", TensorView::Of(const_cast<uint8_t*>(big.data()), DType::kU8, Device::kCpu, big.size()))
          .ok());
  const std::string path = Path("kept.safetensors");
  std::ofstream(path) << "old";
  ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {kLimit, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = writer.Write(path);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("File too large")));
  EXPECT_EQ(ReadBytes(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace snapkv::runtime
