// SPDX-License-Identifier: Apache-2.0
// ReadLeasedDocument: the bytes of a leased document, whatever happens to the connection on the way.
#pragma once

#include <functional>
#include <string>

#include "launch/worker/link.h"

namespace snapkv::launch {

// What became of a read.
struct ReadOutcome {
  Verdict verdict = Verdict::kOk;  // kOk, kLost, kRefused or kFatal (also after Close)
  absl::Status status;             // CHECKSUM_MISMATCH, when size or hash are wrong again and again: kRefused
  std::string bytes;
};

// Goes on at the byte where a stream broke, with pauses in between, for as long as it takes; `wanted` ends it
// (kLost). Blocks.
ReadOutcome ReadLeasedDocument(WorkerLink& link, const v1::Lease& lease, const std::function<bool()>& wanted);

}  // namespace snapkv::launch
