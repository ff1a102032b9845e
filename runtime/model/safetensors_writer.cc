// SPDX-License-Identifier: Apache-2.0
// The safetensors writer: header first, data after it, all of it in a temporary file that is renamed at the
// end.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "nlohmann/json.hpp"
#include "runtime/model/safetensors.h"

namespace snapkv::runtime {
namespace {

using Json = nlohmann::ordered_json;

const char* FormatName(DType t) {
  switch (t) {
    case DType::kF32:
      return "F32";
    case DType::kF64:
      return "F64";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
    default:
      return nullptr;
  }
}

absl::Status WriteAll(int fd, const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, at, static_cast<size_t>(std::min<int64_t>(bytes, 1 << 30)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "write");
    at += n;
    bytes -= n;
  }
  return absl::OkStatus();
}

// A new file beside `target`, created with the user's umask (mkstemp would make it private).
absl::StatusOr<std::pair<int, std::string>> CreateBeside(const std::string& target) {
  for (int attempt = 0;; ++attempt) {
    std::string name = target + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(attempt);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return std::pair(fd, std::move(name));
    if (errno != EEXIST || attempt == 100) return absl::ErrnoToStatus(errno, "create '" + name + "'");
  }
}

// Where the bytes shall go: `path`, or what it links to, so that a link stays a link.
absl::StatusOr<std::string> ResolveTarget(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    return path;  // a missing or unsearchable folder shows when the file is created
  if (!std::filesystem::is_regular_file(status)) {
    return InvalidArgument("it exists and is not a regular file: choose another path");
  }
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), "resolve");
  return target.string();
}

}  // namespace

absl::Status SafetensorsWriter::Add(const std::string& name, const TensorView& view) {
  if (name.empty() || name == "__metadata__") return InvalidArgument("a tensor cannot be named '", name, "'");
  for (const Tensor& t : tensors_) {
    if (t.name == name) return InvalidArgument("the tensor '", name, "' was added twice");
  }
  try {
    Json(name).dump();
  } catch (const Json::exception&) {
    return InvalidArgument("a tensor's name is not valid UTF-8");
  }
  if (FormatName(view.dtype) == nullptr) {
    return InvalidArgument("tensor '", name, "': the format has no dtype ", DTypeName(view.dtype));
  }
  if (!view.contiguous())
    return InvalidArgument("tensor '", name, "': ", view.ToString(), " is not contiguous");
  tensors_.push_back({name, view});
  return absl::OkStatus();
}

std::string SafetensorsWriter::Header(const std::vector<const Tensor*>& order) const {
  Json header = Json::object();
  int64_t offset = 0;
  for (const Tensor* t : order) {
    Json shape = Json::array();
    for (int i = 0; i < t->view.rank; ++i) shape.push_back(t->view.dim(i));
    const int64_t end = offset + t->view.bytes();
    header[t->name] = {
        {"dtype", FormatName(t->view.dtype)}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // spaces are legal JSON and align the data
  return text;
}

absl::Status SafetensorsWriter::Write(const std::string& path) const {
  std::vector<const Tensor*> order;
  for (const Tensor& t : tensors_) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
    return BlockBytes(a->view.dtype) > BlockBytes(b->view.dtype);
  });
  const std::string header = Header(order);
  const uint64_t header_bytes = header.size();

  const std::string context = "cannot write '" + path + "'";
  absl::StatusOr<std::string> target = ResolveTarget(path);
  if (!target.ok()) return Annotate(target.status(), context);
  absl::StatusOr<std::pair<int, std::string>> file = CreateBeside(*target);
  if (!file.ok()) return Annotate(file.status(), context);
  const auto& [fd, temporary] = *file;

  absl::Status status = WriteAll(fd, &header_bytes, sizeof(header_bytes));
  if (status.ok()) status = WriteAll(fd, header.data(), static_cast<int64_t>(header.size()));
  for (const Tensor* t : order) {
    if (status.ok()) status = WriteAll(fd, t->view.data, t->view.bytes());
  }
  if (status.ok() && ::fsync(fd) != 0) status = absl::ErrnoToStatus(errno, "fsync");
  if (::close(fd) != 0 && status.ok()) status = absl::ErrnoToStatus(errno, "close");
  if (status.ok() && ::rename(temporary.c_str(), target->c_str()) != 0)
    status = absl::ErrnoToStatus(errno, "rename");
  if (!status.ok()) ::unlink(temporary.c_str());
  return Annotate(status, context);
}

}  // namespace snapkv::runtime
