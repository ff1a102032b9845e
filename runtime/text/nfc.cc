// SPDX-License-Identifier: Apache-2.0
// NFC on utf8proc's tables. utf8proc_map itself orders combining marks by insertion, which is quadratic in a
// long run of marks; here decomposition and composition are utf8proc's and the ordering is a stable sort.
#include "runtime/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/base/status.h"
#include "runtime/text/utf8.h"

namespace snapkv::runtime {
namespace {

constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
constexpr int kMaxDecomposition = 64;  // the longest canonical decomposition has 4 code points

utf8proc_propval_t CombiningClass(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void OrderCombiningMarks(std::vector<int32_t>* points) {
  for (auto begin = points->begin(); begin != points->end();) {
    if (CombiningClass(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, points->end(), [](int32_t p) { return CombiningClass(p) == 0; });
    std::stable_sort(begin, end, [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end;
  }
}

}  // namespace

bool IsCertainlyNfc(std::string_view text) {
  // U+0300, the first code point that is not NFC-inert, is CC 80: every lead byte below CC is smaller.
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

absl::StatusOr<std::string> NormalizeNfc(std::string_view text) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return InvalidArgument("text of ", text.size(), " bytes is too long to normalise; split it below 2 GiB");
  }
  std::vector<int32_t> points;
  points.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = ReadUtf8(text, pos);
    pos += step.length;
    int32_t parts[kMaxDecomposition];
    int last_boundclass = 0;
    const auto count = utf8proc_decompose_char(static_cast<int32_t>(step.code_point), parts,
                                               kMaxDecomposition, kOptions, &last_boundclass);
    if (count < 0 || count > kMaxDecomposition) {
      return Internal("utf8proc cannot decompose code point ", static_cast<uint32_t>(step.code_point), ": ",
                      count < 0 ? utf8proc_errmsg(count) : "result too long");
    }
    points.insert(points.end(), parts, parts + count);
  }
  OrderCombiningMarks(&points);
  const auto length =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), kOptions);
  if (length < 0) return Internal("utf8proc cannot compose: ", utf8proc_errmsg(length));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) AppendUtf8(static_cast<char32_t>(points[i]), &out);
  return out;
}

}  // namespace snapkv::runtime
