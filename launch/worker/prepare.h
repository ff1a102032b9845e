// SPDX-License-Identifier: Apache-2.0
// LeasePreparer: from a lease and the bytes of its document to a prompt.
#pragma once

#include <memory>
#include <string>

#include "launch/flags.h"
#include "launch/output/record.h"
#include "launch/worker/lease_book.h"
#include "runtime/model/config.h"

namespace snapkv::launch {

// The flags' values with those of `parameters` in their place. Errors: PARAMETER_INVALID, with the field's
// name.
DocumentError ApplyParameters(const v1::Parameters& parameters, DocumentParams& params,
                              runtime::CompressionOptions& compression, Overflow& overflow);

struct PrepareOptions {
  const Flags* flags = nullptr;
  const runtime::ModelConfig* config = nullptr;
  DType dtype = DType::kF32;
  int64_t context = 0;  // prompt plus generated tokens
  RunParams run;        // of this run: those of a document differ from it in what its parameters set
};

// Immutable; any thread may call it. What the options point to must outlive it.
class LeasePreparer {
 public:
  LeasePreparer(std::shared_ptr<const runtime::Tokenizer> tokenizer, const PrepareOptions& options);

  // document.error: parameters out of range, text that is none, a prompt that does not fit the context or
  // --cache-bytes.
  PreparedLease Prepare(const v1::Lease& lease, std::string bytes) const;

 private:
  const PrepareOptions options_;
  const PromptBuilder refuses_, cuts_;  // documents that are too long
};

}  // namespace snapkv::launch
