// SPDX-License-Identifier: Apache-2.0
// Writing of records, counting of results.
#include "launch/client/record_sink.h"

#include "launch/client/text.h"
#include "launch/output/output_files.h"
#include "launch/report.h"

namespace snapkv::launch {
namespace {

constexpr int64_t kMostErrorsShown = 20;

}  // namespace

Display::Display(ProgressMode mode) : progress_({.mode = mode}) {}

void Display::Update(const ProgressState& state) {
  const std::lock_guard lock(mutex_);
  progress_.Update(state);
}

absl::Status Display::Print(const std::string& text) {
  const std::lock_guard lock(mutex_);
  progress_.Clear();
  return WriteStdout(text);
}

void Display::Finish() {
  const std::lock_guard lock(mutex_);
  progress_.Finish();
}

RecordSink::RecordSink(std::shared_ptr<OutputLog> log, bool ordered, bool token_ids, Display& display)
    : log_(std::move(log)),
      ordered_(ordered, [this](const std::string& line) { return Write(line); }),
      display_(display) {
  context_.token_ids = token_ids;
  context_.created_unix_s = absl::ToUnixSeconds(absl::Now());
}

void RecordSink::SetModel(const std::string& model) {
  const std::lock_guard lock(mutex_);
  constexpr std::string_view kPrefix = "models/";
  context_.model = model.starts_with(kPrefix) ? model.substr(kPrefix.size()) : model;
}

absl::Status RecordSink::Write(const std::string& line) {
  return log_ ? Annotate(log_->Append(line), "--output") : display_.Print(line);
}

absl::Status RecordSink::NoteLocked(const absl::Status& status) {
  status_.Update(status);
  return status;
}

std::string RecordSink::LineLocked(const DocumentResult& result, const std::string& params_sha256) {
  if (result.error.ok()) {
    ++totals_.done;
    totals_.prompt_tokens += result.prompt_tokens;
    totals_.generated_tokens += result.completion_tokens;
  } else {
    ++totals_.failed;
    if (++errors_shown_ <= kMostErrorsShown) {
      Document document;
      document.id = result.id;
      LOG(Error) << result.error.reason << ": " << Printable(ErrorLine(document, result.error));
      if (errors_shown_ == kMostErrorsShown) LOG(Error) << "further errors are in the records only";
    }
  }
  context_.params_sha256 = params_sha256;
  return SafeJson(RecordLine(result, context_));
}

absl::Status RecordSink::Put(int64_t ordinal, const DocumentResult& result,
                             const std::string& params_sha256) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(status_);
  return NoteLocked(ordered_.Put(ordinal, LineLocked(result, params_sha256)));
}

absl::Status RecordSink::Skip(int64_t ordinal) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(status_);
  return NoteLocked(ordered_.Skip(ordinal));
}

absl::Status RecordSink::PutUnplaced(const DocumentResult& result, const std::string& params_sha256) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(status_);
  return NoteLocked(Write(LineLocked(result, params_sha256)));
}

absl::StatusOr<bool> RecordSink::Sync() {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(status_);
  if (log_) RETURN_IF_ERROR(NoteLocked(Annotate(log_->Sync(), "--output")));
  return ordered_.held() == 0;
}

absl::Status RecordSink::Finish(bool discard_if_empty) {
  const std::lock_guard lock(mutex_);
  if (status_.ok()) NoteLocked(ordered_.Drain()).IgnoreError();
  const absl::Status closed = log_ ? log_->Close(discard_if_empty) : absl::OkStatus();
  return status_.ok() ? NoteLocked(closed) : status_;
}

absl::Status RecordSink::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

BatchTotals RecordSink::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace snapkv::launch
