// SPDX-License-Identifier: Apache-2.0
// The tests' own tools: comparisons that must fail do fail and say where, programs end when they should.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "tests/support/golden.h"
#include "tests/support/run_program.h"
#include "tests/support/tensors.h"

namespace snapkv::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Sets or unsets an environment variable for one scope.
class ScopedEnvironment {
 public:
  ScopedEnvironment(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    value == nullptr ? ::unsetenv(name_.c_str()) : ::setenv(name_.c_str(), value, 1);
  }
  ~ScopedEnvironment() { old_ ? ::setenv(name_.c_str(), old_->c_str(), 1) : ::unsetenv(name_.c_str()); }

 private:
  std::string name_;
  std::optional<std::string> old_;
};

::testing::AssertionResult CloseVectors(const std::vector<float>& got, const std::vector<float>& want,
                                        double absolute, double relative) {
  return Close(ViewOf(got, {static_cast<int64_t>(got.size())}),
               ViewOf(want, {static_cast<int64_t>(want.size())}), absolute, relative);
}

TEST(CloseTest, AcceptsUpToTheToleranceAndNoMore) {
  EXPECT_TRUE(CloseVectors({}, {}, 0, 0));
  EXPECT_TRUE(CloseVectors({1.0f, -8.0f}, {1.0f, -8.0f}, 0, 0));
  EXPECT_TRUE(CloseVectors({1.25f}, {1.0f}, 0.25, 0));
  EXPECT_FALSE(CloseVectors({1.25f}, {1.0f}, 0.2499, 0));
  EXPECT_TRUE(CloseVectors({-9.0f}, {-8.0f}, 0, 0.125));
  EXPECT_FALSE(CloseVectors({-9.0f}, {-8.0f}, 0, 0.1249));
  EXPECT_TRUE(CloseVectors({0.0f}, {-0.0f}, 0, 0));
}

TEST(CloseTest, InfinitiesAndNansMustStandWhereTheyAreWanted) {
  EXPECT_TRUE(CloseVectors({kNan, kInf, -kInf}, {kNan, kInf, -kInf}, 0, 0));
  for (const double relative : {0.0, 1e300}) {
    EXPECT_FALSE(CloseVectors({kNan}, {1.0f}, 1e300, relative));
    EXPECT_FALSE(CloseVectors({1.0f}, {kNan}, 1e300, relative));
    EXPECT_FALSE(CloseVectors({kInf}, {1.0f}, 1e300, relative));
    EXPECT_FALSE(CloseVectors({1.0f}, {kInf}, 1e300, relative));
    EXPECT_FALSE(CloseVectors({-kInf}, {kInf}, 1e300, relative));
    EXPECT_FALSE(CloseVectors({kNan}, {kInf}, 1e300, relative));
  }
}

TEST(CloseTest, EveryPositionIsLookedAt) {
  const std::vector<float> want(257, 1.0f);
  for (size_t i = 0; i < want.size(); ++i) {
    std::vector<float> got = want;
    got[i] = 1.1f;
    EXPECT_FALSE(CloseVectors(got, want, 1e-3, 0)) << i;
  }
}

TEST(CloseTest, TheMessageNamesTheFirstCoordinateAndTheWorst) {
  std::vector<float> got(24, 0.5f), want(24, 0.5f);
  got[7] = 0.75f;   // [0, 1, 3] of [2, 3, 4]
  got[23] = -0.5f;  // [1, 2, 3]
  const auto result = Close(ViewOf(got, {2, 3, 4}), ViewOf(want, {2, 3, 4}), 1e-6, 0);
  EXPECT_THAT(std::string(result.message()),
              AllOf(HasSubstr("at [0, 1, 3]: got 0.75, want 0.5"), HasSubstr("2 of 24"),
                    HasSubstr("worst at [1, 2, 3] by 1")));
  EXPECT_FALSE(Close(ViewOf(got, {2, 12}), ViewOf(want, {24}), 1e9, 0));
}

TEST(CloseTest, StridedViewsAndMixedTypes) {
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  const std::vector<double> columns = {1, 4, 2, 5, 3, 6};
  EXPECT_TRUE(Close(ViewOf(rows, {2, 3}).Transposed(0, 1), ViewOf(columns, {3, 2}), 0, 0));
  EXPECT_FALSE(Close(ViewOf(rows, {3, 2}), ViewOf(columns, {3, 2}), 0, 0));
}

TEST(EqualBitsTest, SeesSignsPayloadsAndTypes) {
  const std::vector<float> zero = {0.0f}, minus = {-0.0f};
  EXPECT_TRUE(EqualBits(ViewOf(zero, {1}), ViewOf(zero, {1})));
  const auto result = EqualBits(ViewOf(zero, {1}), ViewOf(minus, {1}));
  EXPECT_FALSE(result);
  EXPECT_THAT(std::string(result.message()),
              AllOf(HasSubstr("at [0]"), HasSubstr("0x00000000, want 0x80000000")));
  const std::vector<uint32_t> payloads = {0x7fc00000, 0x7fc00001};
  EXPECT_FALSE(EqualBits(ViewOf(&payloads[0], DType::kF32, {1}), ViewOf(&payloads[1], DType::kF32, {1})));
  EXPECT_TRUE(EqualBits(ViewOf(&payloads[1], DType::kF32, {1}), ViewOf(&payloads[1], DType::kF32, {1})));
  EXPECT_FALSE(EqualBits(ViewOf(&payloads[0], DType::kI32, {1}), ViewOf(&payloads[0], DType::kF32, {1})));
  TestTensor a(DType::kQ8_0, {2, 32}), b(DType::kQ8_0, {2, 32});
  EXPECT_TRUE(EqualBits(a, b));
  b.as<uint8_t>()[67] = 0;
  EXPECT_THAT(std::string(EqualBits(a, b).message()), HasSubstr("block 1"));
}

TEST(ExpectTest, FailuresAreReportedAtTheCallersLine) {
  static const std::vector<float> got = {1, 2}, want = {1, 3};
  EXPECT_NONFATAL_FAILURE(ExpectClose(got, want, {2}, 0.5, 0, "pooled"), "pooled: at [1]: got 2, want 3");
  EXPECT_NONFATAL_FAILURE(ExpectEqualBits(got, want, {1, 2}, "bits"), "bits: at [0, 1]");
  EXPECT_NONFATAL_FAILURE(ExpectClose(got, want, {3}, 9, 0, "size"),
                          "size: 2 and 2 elements for the shape f32[3]");
  ExpectClose(got, want, {2}, 1, 0);
  ExpectEqualBits(got, got, {2});
}

TEST(FillTest, TheSameSeedGivesTheSameValuesInEveryType) {
  for (const DType t :
       {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32, DType::kI64, DType::kU8}) {
    TestTensor a(t, {3, 5, 7}), b(t, {3, 5, 7}), c(t, {3, 5, 7});
    FillIntegers(a, 1, 0, 100);
    FillIntegers(b, 1, 0, 100);
    FillIntegers(c, 2, 0, 100);
    EXPECT_TRUE(EqualBits(a, b)) << DTypeName(t);
    EXPECT_FALSE(EqualBits(a, c)) << DTypeName(t);
  }
}

TEST(FillTest, MomentsAreRight) {
  TestTensor uniform(DType::kF32, {100'000}), normal(DType::kF32, {100'000});
  FillUniform(uniform, 3, -1, 3);
  FillNormal(normal, 4, 2);
  double u = 0, n = 0, n2 = 0;
  for (int64_t i = 0; i < 100'000; ++i) {
    ASSERT_GE(ElementAt(uniform, i), -1);
    ASSERT_LE(ElementAt(uniform, i), 3);
    u += ElementAt(uniform, i) / 1e5;
    n += ElementAt(normal, i) / 1e5;
    n2 += ElementAt(normal, i) * ElementAt(normal, i) / 1e5;
  }
  EXPECT_NEAR(u, 1, 0.02);
  EXPECT_NEAR(n, 0, 0.03);
  EXPECT_NEAR(n2, 4, 0.1);
}

TEST(ElementTest, EveryHalfSurvivesAndTiesGoToEven) {
  TestTensor half(DType::kF16, {1});
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(ToFloat(x))) continue;
    SetElement(half, 0, ToFloat(x));
    ASSERT_EQ(half.as<F16>()->bits, bits);
  }
  const auto rounded = [&](double x) {
    SetElement(half, 0, x);
    return half.as<F16>()->bits;
  };
  EXPECT_EQ(rounded(1 + 0x1p-11), 0x3c00);      // half-way, down to even
  EXPECT_EQ(rounded(1 + 3 * 0x1p-11), 0x3c02);  // half-way, up to even
  EXPECT_EQ(rounded(65519.9), 0x7bff);
  EXPECT_EQ(rounded(-65520), 0xfc00);
  EXPECT_EQ(rounded(0x1p-25), 0);
}

TEST(TestTensorTest, UnwrittenElementsAreNan) {
  const TestTensor t(DType::kBF16, {3});
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(ElementAt(t, i)));
  EXPECT_EQ(TestTensor(DType::kF32, {0, 4}).view().bytes(), 0);
}

TEST(GoldenTest, TheEnvironmentDecidesAndMustBeReadable) {
  const std::string small = SourceFolder() + "/tests/golden";
  {
    const ScopedEnvironment set("SNAPKV_GOLDEN", "/does/not/exist");
    EXPECT_THAT(std::string(GoldenFolder().status().message()),
                AllOf(HasSubstr("SNAPKV_GOLDEN"), HasSubstr("/does/not/exist")));
    EXPECT_FALSE(GoldenFile("dequant.safetensors").ok());
  }
  {
    const ScopedEnvironment empty("SNAPKV_GOLDEN", "");
    EXPECT_FALSE(GoldenFolder().ok());
  }
  {
    const ScopedEnvironment set("SNAPKV_GOLDEN", small.c_str());
    ASSERT_TRUE(GoldenFolder().ok());
    EXPECT_TRUE(UsesSmallGolden());
    EXPECT_TRUE(GoldenFile("dequant.safetensors").ok()) << GoldenFile("dequant.safetensors").status();
    EXPECT_EQ(GoldenFile("no_such_file.json").status().code(), absl::StatusCode::kUnavailable);
  }
  const ScopedEnvironment unset("SNAPKV_GOLDEN", nullptr);
  ASSERT_TRUE(GoldenFolder().ok()) << GoldenFolder().status();
}

TEST(GoldenTest, AMissingModelSaysHowToGetIt) {
  const ScopedEnvironment unset("SNAPKV_MODEL", nullptr);
  const ScopedEnvironment cache("XDG_CACHE_HOME", "/does/not/exist");
  EXPECT_THAT(std::string(ModelPath().status().message()),
              AllOf(HasSubstr("/does/not/exist/snapkv/models/smollm2.gguf"), HasSubstr("launch/setup.sh")));
}

TEST(JsonTest, ErrorsNameFileAndLine) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("support_test." + std::to_string(::getpid()))).string();
  std::ofstream(path) << "{\"a\": 1}\n\n[2]\r\n";
  const auto lines = LoadJsonLines(path);
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[1][0], 2);
  EXPECT_THAT(std::string(LoadJson(path).status().message()), HasSubstr(path));
  std::ofstream(path) << "{}\n{\n";
  EXPECT_THAT(std::string(LoadJsonLines(path).status().message()), HasSubstr(path + "' line 2"));
  std::filesystem::remove(path);
  EXPECT_THAT(std::string(LoadJson(path).status().message()), HasSubstr(path));
}

TEST(RunProgramTest, StreamsArgumentsEnvironmentAndExitCode) {
  ProgramOptions options;
  options.argv = {"sh", "-c", "cat; echo \"$0 $VALUE ${HOME-unset} $(pwd)\" >&2; exit 7", "a b"};
  options.environment = {{"VALUE", "x=y"}};
  options.unset = {"HOME"};
  options.folder = "/";
  options.input = std::string(1'000'000, 'z');  // more than a pipe holds, both ways
  const auto result = RunProgram(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->signal, 0);
  EXPECT_EQ(result->out, options.input);
  EXPECT_EQ(result->err, "a b x=y unset /\n");
  EXPECT_FALSE(result->timed_out);
  EXPECT_FALSE(result->left_running);
  EXPECT_GT(result->peak_rss_bytes, 0);
}

TEST(RunProgramTest, SignalsAndUnreadInput) {
  const auto killed = RunProgram({.argv = {"sh", "-c", "kill -9 $$"}, .input = std::string(1'000'000, 'x')});
  ASSERT_TRUE(killed.ok());
  EXPECT_EQ(killed->signal, 9);
  EXPECT_EQ(killed->exit_code, -1);
  EXPECT_THAT(killed->ToString(), HasSubstr("signal 9"));
  EXPECT_THAT(std::string(RunProgram({.argv = {"/no/such/program"}}).status().message()),
              HasSubstr("/no/such/program"));
  EXPECT_FALSE(RunProgram({}).ok());
}

TEST(RunProgramTest, ATimeoutEndsTheWholeGroup) {
  const auto stubborn =
      RunProgram({.argv = {"sh", "-c", "trap '' TERM; sleep 60 & while true; do sleep 1; done"},
                  .timeout = std::chrono::milliseconds(200)});
  ASSERT_TRUE(stubborn.ok());
  EXPECT_TRUE(stubborn->timed_out);
  EXPECT_EQ(stubborn->signal, 9);
  EXPECT_LT(stubborn->seconds, 10);
  EXPECT_FALSE(stubborn->left_running) << "a child of the group outlived it";
}

TEST(RunProgramTest, SomebodyLeftRunningIsReported) {
  const auto result = RunProgram({.argv = {"sh", "-c", "sleep 60 & echo started"}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_EQ(result->out, "started\n");
  EXPECT_TRUE(result->left_running);
}

TEST(ProgramTest, CanBeWatchedAndKilledWhileItRuns) {
  auto program = Program::Start({.argv = {"sh", "-c", "sleep 50 & echo ready >&2; wait; echo done"}});
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE((*program)->WaitForOutput("ready"));
  const std::vector<pid_t> children = (*program)->Descendants();
  ASSERT_EQ(children.size(), 1u);
  ASSERT_EQ(::kill(children[0], SIGKILL), 0);
  const ProgramResult result = (*program)->Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "done\n");
  EXPECT_LT(result.seconds, 30);
  EXPECT_FALSE((*program)->WaitForOutput("never written"));
  EXPECT_TRUE((*program)->Descendants().empty());
}

}  // namespace
}  // namespace snapkv::testing
