// SPDX-License-Identifier: Apache-2.0
// Documents on their way to the server, what is remembered of them, and results on their way back.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "launch/input/document.h"
#include "launch/output/record.h"
#include "snapkv/v1/common.pb.h"
#include "snapkv/v1/jobs.pb.h"

namespace snapkv::launch {

namespace v1 = snapkv::v1;

// A document that was read without an error. Text travels as text/plain, a conversation as
// application/json; of the parameters only what the record itself gives.
v1::Document ToProto(Document document);

// What is needed to write the record of a document when its result comes: 48 bytes each, whatever its id.
struct DocumentNote {
  int64_t ordinal = 0;  // place among all items of the input, from 0
  int64_t line = 0;     // of a JSONL file, else 0
  RecordForm form = RecordForm::kShort;
  bool finished = false;  // its record is written
};

// Thread-safe.
class DocumentIndex {
 public:
  void Add(const std::string& id, const DocumentNote& note);
  std::optional<DocumentNote> Find(const std::string& id) const;
  // Notes that the record is written. False: it was before.
  bool Finish(const std::string& id);
  int64_t size() const;
  int64_t unfinished() const;

 private:
  using Key = std::array<uint64_t, 2>;  // half of the id's SHA-256
  static Key KeyOf(const std::string& id);
  mutable std::mutex mutex_;
  absl::flat_hash_map<Key, DocumentNote> notes_;
  int64_t finished_ = 0;
};

// As snapkv-prefill would have had it. `cache.policy` is "full" where all rows were kept.
DocumentResult ToDocumentResult(const v1::Result& result, const DocumentNote& note);

// A document that was not accepted, by this program or by the server.
DocumentResult ToFailedResult(const std::string& id, const DocumentNote& note, DocumentError error);
// `status` as the server gave it for one document.
DocumentError ToDocumentError(const absl::Status& status);
// The server refused this document, and would take others.
bool IsDocumentRefusal(const absl::Status& status);

}  // namespace snapkv::launch
