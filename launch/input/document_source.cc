// SPDX-License-Identifier: Apache-2.0
// From inputs to documents with unique ids.
#include "launch/input/document_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/base/status.h"

namespace snapkv::launch {
namespace {

DocumentError DuplicateId(const std::string& id, int64_t column = 0) {
  return {InvalidArgument("the id '", id, "' was used before; give every document an id of its own"),
          "DOCUMENT_ID_DUPLICATE", 0, column};
}

}  // namespace

DocumentSource::DocumentSource(SourceOptions options, InputFiles files)
    : options_(std::move(options)), files_(std::move(files)) {
  for (const InputFile& file : files_.files) {
    has_jsonl_ = has_jsonl_ || file.jsonl;
    struct stat info = {};
    const bool is_stdin = file.path == "-";
    const bool known = (is_stdin ? ::fstat(STDIN_FILENO, &info) : ::stat(file.path.c_str(), &info)) == 0;
    if (file.regular || (known && (S_ISFIFO(info.st_mode) || (is_stdin && S_ISREG(info.st_mode)))))
      regular_files_.push_back(is_stdin ? "/dev/stdin" : file.path);
    const bool sized = known && S_ISREG(info.st_mode);
    if (bytes_total_ >= 0) bytes_total_ = sized ? bytes_total_ + info.st_size : -1;
  }
}

absl::StatusOr<std::unique_ptr<DocumentSource>> DocumentSource::Open(SourceOptions options) {
  if (options.encoding != "utf-8" && options.encoding != "latin1") {
    return InvalidArgument("--encoding ", options.encoding, ": expected utf-8 or latin1");
  }
  if (options.max_document_bytes < 1) return InvalidArgument("--max-document-bytes must be at least 1");
  if (options.max_line_bytes < 1) return InvalidArgument("--max-line-bytes must be at least 1");
  ASSIGN_OR_RETURN(InputFiles files, FindInputFiles(options.inputs, options.format));
  return std::unique_ptr<DocumentSource>(new DocumentSource(std::move(options), std::move(files)));
}

absl::StatusOr<UniqueFd> DocumentSource::OpenFile(const InputFile& file) const {
  if (file.path == "-") return UniqueFd(STDIN_FILENO, /*owned=*/false);
  return file.regular ? OpenRegular(file.path) : OpenAny(file.path, options_.stop);
}

ReadOptions DocumentSource::read_options() const {
  return {options_.encoding, options_.max_document_bytes, options_.stop};
}

std::string DocumentSource::GeneratedId(const InputFile& file, int64_t line) const {
  return absl::StrCat(files_.direct ? "" : file.name + ":", "line-", line);
}

void DocumentSource::End() {
  jsonl_ = nullptr;
  next_file_ = files_.files.size();
}

InputItem DocumentSource::FaultItem(const InputFile& file, DocumentError error) {
  InputItem item;
  item.document.id = ids_.AddUnique(file.name);
  item.document.source = file.name;
  item.error = std::move(error);
  return item;
}

std::optional<InputItem> DocumentSource::ReadTextItem(const InputFile& file) {
  InputItem item;
  item.document.source = file.name;
  absl::StatusOr<UniqueFd> fd = OpenFile(file);
  DocumentError error;
  if (fd.ok()) {
    error = ReadText(fd->get(), file.name, read_options(), item.document.text);
    struct stat info = {};
    if (::fstat(fd->get(), &info) == 0 && S_ISREG(info.st_mode)) bytes_before_ += info.st_size;
  } else {
    error = {Annotate(fd.status(), file.name), "DOCUMENT_NOT_FOUND"};
  }
  if (absl::IsCancelled(error.status)) return std::nullopt;
  // Two names that were altered to be printable may be the same without anybody's fault.
  const bool fresh = ids_.Add(file.name);
  item.document.id = fresh ? file.name : ids_.AddUnique(file.name);
  if (!fresh && file.exact) error = DuplicateId(file.name);
  if (error.ok()) {
    item.document.params = options_.defaults;
  } else {
    item.SetError(std::move(error));
  }
  return item;
}

DocumentError DocumentSource::StartJsonl(const InputFile& file) {
  absl::StatusOr<UniqueFd> fd = OpenFile(file);
  if (!fd.ok()) return {Annotate(fd.status(), file.name), "DOCUMENT_NOT_FOUND"};
  const int number = fd->get();
  LineContext context = {options_.defaults, read_options(), file.name, ""};
  if (file.path != "-") context.folder = std::filesystem::path(file.path).parent_path().string();
  jsonl_ = std::make_unique<OpenJsonl>(OpenJsonl{
      &file, *std::move(fd), LineReader(number, options_.max_line_bytes, options_.stop), std::move(context)});
  return {};
}

std::optional<InputItem> DocumentSource::NextLine() {
  const InputFile& file = *jsonl_->file;
  const absl::StatusOr<std::optional<Line>> line = jsonl_->lines.Next();
  if (absl::IsCancelled(line.status())) {
    End();
    return std::nullopt;
  }
  if (!line.ok()) {
    InputItem item = FaultItem(file, {Annotate(line.status(), file.name), "DOCUMENT_NOT_FOUND"});
    item.document.line = item.error.line = jsonl_->lines.number();
    bytes_before_ += jsonl_->lines.bytes_read();
    jsonl_ = nullptr;
    return item;
  }
  if (!line->has_value()) {
    if (jsonl_->records == 0) LOG(Warning) << file.name << ": holds no record";
    bytes_before_ += jsonl_->lines.bytes_read();
    jsonl_ = nullptr;
    return std::nullopt;
  }
  ++jsonl_->records;
  const Line& l = **line;
  InputItem item;
  int64_t id_column = 0;
  if (l.too_long) {
    item.document.source = file.name;
    item.document.line = l.number;
    item.SetError({InvalidArgument("the line has ", l.bytes, " bytes, more than ", options_.max_line_bytes,
                                   ", the limit of --max-line-bytes; put the text into a file of its own ",
                                   "(\"path\"), or raise the limit"),
                   "DOCUMENT_TOO_LARGE"});
  } else {
    item = ParseRecord(l.text, l.number, jsonl_->context, &id_column);
  }
  if (absl::IsCancelled(item.error.status)) {
    End();
    return std::nullopt;
  }
  const std::string own = GeneratedId(file, l.number);
  if (item.document.id.empty()) {
    item.document.id = ids_.AddUnique(own);
  } else if (!ids_.Add(item.document.id)) {
    DocumentError error = DuplicateId(item.document.id, id_column);
    item.document.id = ids_.AddUnique(own);
    item.SetError(std::move(error));
  }
  return item;
}

ItemCount DocumentSource::CountItems() const {
  if (!has_jsonl_) return {static_cast<int64_t>(files_.files.size()), true};
  const int64_t items = items_read_;
  if (all_read_) return {items, true};
  const int64_t bytes = bytes_read_;
  if (bytes_total_ <= 0 || bytes <= 0 || items == 0) return {};
  const double share = std::min(1.0, static_cast<double>(bytes) / static_cast<double>(bytes_total_));
  return {std::max<int64_t>(items, std::llround(static_cast<double>(items) / share)), false};
}

absl::StatusOr<std::optional<InputItem>> DocumentSource::Next() {
  auto item = NextItem();
  if (item.ok() && item->has_value()) ++items_read_;
  bytes_read_ = bytes_before_ + (jsonl_ != nullptr ? jsonl_->lines.bytes_read() : 0);
  // What was stopped has not been read to its end.
  if (item.ok() && !item->has_value()) all_read_ = !(options_.stop && options_.stop());
  return item;
}

absl::StatusOr<std::optional<InputItem>> DocumentSource::NextItem() {
  while (true) {
    if (options_.stop && options_.stop()) End();
    if (jsonl_ != nullptr) {
      std::optional<InputItem> item = NextLine();
      if (item.has_value()) return item;
      continue;
    }
    if (next_file_ == files_.files.size()) return std::nullopt;
    const InputFile& file = files_.files[next_file_++];
    if (!file.fault.empty()) {
      return FaultItem(file, {NotFound(file.name, ": ", file.fault), "DOCUMENT_NOT_FOUND"});
    }
    if (!file.jsonl) {
      std::optional<InputItem> item = ReadTextItem(file);
      if (item.has_value()) return item;
      End();
      continue;
    }
    DocumentError error = StartJsonl(file);
    if (absl::IsCancelled(error.status)) End();
    if (!error.ok() && !absl::IsCancelled(error.status)) return FaultItem(file, std::move(error));
  }
}

}  // namespace snapkv::launch
