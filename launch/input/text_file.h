// SPDX-License-Identifier: Apache-2.0
// The text of one document: read from a file or a pipe, decoded, and checked.
#pragma once

#include <cstdint>
#include <string>

#include "launch/input/document.h"
#include "launch/input/read_fd.h"

namespace snapkv::launch {

inline constexpr int64_t kMaxDocumentBytes = int64_t{16} << 20;  // SERVICE limit; the default of the flag

// UTF-8 text out of a document's bytes: a byte-order mark is dropped, "latin1" converted ("utf-8" is the
// other `encoding`). `name` begins the messages: a path, or what else holds the text. Errors: DOCUMENT_EMPTY
// (nothing but white space), DOCUMENT_NOT_UTF8 (with the byte offset; also UTF-16 and NUL bytes). `text` is
// set only without an error.
DocumentError DecodeText(std::string bytes, const std::string& name, const std::string& encoding,
                         std::string& text);

struct ReadOptions {
  std::string encoding = "utf-8";
  int64_t max_bytes = kMaxDocumentBytes;  // of the file, before it is converted
  StopFn stop = nullptr;
};

// The rest of `fd`, decoded. Errors: those of DecodeText, DOCUMENT_TOO_LARGE (at most max_bytes + 64 KiB are
// read), DOCUMENT_NOT_FOUND when reading fails; status CANCELLED without a reason when stopped.
DocumentError ReadText(int fd, const std::string& name, const ReadOptions& options, std::string& text);

// The same for a path, which must be a regular file (nothing else is waited for): DOCUMENT_NOT_FOUND says why
// it is not.
DocumentError ReadTextFile(const std::string& path, const std::string& name, const ReadOptions& options,
                           std::string& text);

}  // namespace snapkv::launch
