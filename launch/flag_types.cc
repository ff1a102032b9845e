// SPDX-License-Identifier: Apache-2.0
// Checks and kinds of flags, by CLI11.
#include "launch/flag_types.h"

#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

// "64K" -> 65536; nullopt for anything that is no such number.
std::optional<int64_t> ParseBytes(const std::string& text) {
  int64_t number = 0;
  const char* const last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || number < 0) return std::nullopt;
  int shift = 0;
  if (end != last) {
    const size_t unit = std::string("KMGT").find(*end++);
    if (unit == std::string::npos || end != last) return std::nullopt;
    shift = 10 * (static_cast<int>(unit) + 1);
  }
  if (number > INT64_MAX >> shift) return std::nullopt;
  return number << shift;
}

std::string ShowBytes(int64_t bytes) {
  const char* const units[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit < 4; ++unit) bytes /= 1024;
  return absl::StrCat(bytes, units[unit]);
}

}  // namespace

std::string NotEmpty(const std::string& value) { return value.empty() ? "must not be empty" : ""; }

std::string IsUtf8(const std::string& value) {
  const auto bad = runtime::ValidateUtf8(value);
  return bad.has_value() ? "is not UTF-8 at byte offset " + std::to_string(*bad) : "";
}

std::string IsFileName(const std::string& value) {
  return value == "-" ? "- is stdout, which has the result: name a file" : NotEmpty(value);
}

std::string IsUnsigned(const std::string& value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc() && end == value.data() + value.size()) return "";
  return "'" + value + "' is not a whole number from 0 to " + std::to_string(UINT64_MAX);
}

std::function<std::string(const std::string&)> RealRange(double least, double most) {
  return [least, most](const std::string& value) {
    double number = 0;
    if (CLI::detail::lexical_cast(value, number) && number >= least && number <= most) return std::string();
    return absl::StrCat("'", value, "' is not a number from ", least, " to ", most);
  };
}

CLI::Option* AddTexts(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                      const std::string& help) {
  return app.add_option(name, values, help)
      ->check(NotEmpty)
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
}

CLI::Option* AddBytes(CLI::App& app, const std::string& group, const std::string& name, int64_t& value,
                      const std::string& help, int64_t least) {
  return app
      .add_option_function<std::string>(
          name,
          [&value, name, least](const std::string& text) {
            const auto bytes = ParseBytes(text);
            if (!bytes.has_value() || *bytes < least) {
              throw CLI::ValidationError(name, absl::StrCat("'", text, "' is not a number of bytes from ",
                                                            least, "; write e.g. 500000, 64K, 16M or 2G"));
            }
            value = *bytes;
          },
          help)
      ->type_name("BYTES")
      ->default_str(ShowBytes(value))
      ->group(group);
}

void AddProgressFlag(CLI::App& app, const std::string& group, ProgressMode& mode) {
  AddChoice(app, group, "--progress", mode, "on stderr; auto: a bar on a terminal, else a line every 30 s",
            {{"auto", ProgressMode::kAuto},
             {"bar", ProgressMode::kBar},
             {"lines", ProgressMode::kLines},
             {"none", ProgressMode::kNone}});
}

}  // namespace snapkv::launch
