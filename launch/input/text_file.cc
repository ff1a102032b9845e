// SPDX-License-Identifier: Apache-2.0
// Reading, decoding and checking the text of a document.
#include "launch/input/text_file.h"

#include <optional>
#include <utility>

#include "kernels/base/status.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 10;

DocumentError TooLarge(const std::string& name, int64_t max_bytes) {
  return {InvalidArgument(name, ": the document has more than ", max_bytes,
                          " bytes, the limit of --max-document-bytes; shorten it or raise the limit"),
          "DOCUMENT_TOO_LARGE"};
}

}  // namespace

DocumentError DecodeText(std::string bytes, const std::string& name, const std::string& encoding,
                         std::string& text) {
  const bool latin1 = encoding == "latin1";
  const size_t nul = bytes.find('\0');
  const bool utf16 = !latin1 && (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF"));
  if (latin1) bytes = runtime::Latin1ToUtf8(bytes);
  size_t shift = 0;
  if (bytes.starts_with("\xEF\xBB\xBF")) {
    shift = 3;
    bytes.erase(0, shift);
  }
  if (bytes.find_first_not_of(" \t\r\n\v\f") == std::string::npos) {
    return {InvalidArgument(name, ": the document is empty"), "DOCUMENT_EMPTY"};
  }
  if (utf16) {
    return {
        InvalidArgument(name, ": not UTF-8 at byte offset 0: it begins like UTF-16; convert it, e.g. with ",
                        "iconv -f utf-16 -t utf-8"),
        "DOCUMENT_NOT_UTF8"};
  }
  if (nul != std::string::npos) {
    return {InvalidArgument(name, ": NUL byte at offset ", nul, ": this is not a text file"),
            "DOCUMENT_NOT_UTF8"};
  }
  if (const auto bad = runtime::ValidateUtf8(bytes); bad.has_value()) {
    return {InvalidArgument(name, ": not UTF-8 at byte offset ", *bad + shift,
                            "; convert the file, or use --encoding latin1 if it is Latin-1"),
            "DOCUMENT_NOT_UTF8"};
  }
  text = std::move(bytes);
  return {};
}

DocumentError ReadText(int fd, const std::string& name, const ReadOptions& options, std::string& text) {
  std::string bytes;
  while (true) {
    const size_t held = bytes.size();
    if (static_cast<int64_t>(held) > options.max_bytes) return TooLarge(name, options.max_bytes);
    bytes.resize(held + kChunkBytes);
    const absl::StatusOr<size_t> n = ReadSome(fd, bytes.data() + held, kChunkBytes, options.stop);
    if (absl::IsCancelled(n.status())) return {n.status(), ""};
    if (!n.ok()) return {Annotate(n.status(), name), "DOCUMENT_NOT_FOUND"};
    bytes.resize(held + *n);
    if (*n == 0) return DecodeText(std::move(bytes), name, options.encoding, text);
  }
}

DocumentError ReadTextFile(const std::string& path, const std::string& name, const ReadOptions& options,
                           std::string& text) {
  const absl::StatusOr<UniqueFd> fd = OpenRegular(path);
  if (!fd.ok()) return {Annotate(fd.status(), name), "DOCUMENT_NOT_FOUND"};
  return ReadText(fd->get(), name, options, text);
}

}  // namespace snapkv::launch
