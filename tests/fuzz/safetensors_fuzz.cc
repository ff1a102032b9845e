// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for safetensors: the first byte chooses between arbitrary bytes as a file (an error that
// names the file, or tensors that can be read to their last byte) and tensors made of the bytes, which the
// writer must give back.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target safetensors_fuzz
//   build/fuzz/tests/fuzz/safetensors_fuzz -max_total_time=60 -dict=tests/fuzz/safetensors.dict /tmp/seeds
//   tests/fuzz/safetensors_seeds
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/safetensors.h"

namespace snapkv::runtime {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::cerr << "violated: " << what << "\n";
  std::abort();
}

bool Names(const absl::Status& status, const std::string& path) {
  return status.message().find(path) != absl::string_view::npos;
}

// Any bytes.
void FuzzReader(std::string_view bytes) {
  static const int fd = ::memfd_create("fuzz.safetensors", MFD_CLOEXEC);
  Require(fd >= 0 && ::ftruncate(fd, 0) == 0, "a memory file");
  Require(::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "writing it");
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return Require(Names(file.status(), path), "an error names the file");
  uint64_t sum = 0;
  for (const std::string& name : file->names()) {
    Require(file->contains(name), "what is listed is there");
    const absl::StatusOr<TensorView> view = file->tensor(name);
    if (!view.ok()) {
      Require(absl::IsUnimplemented(view.status()), "a listed tensor is at most not supported");
      continue;
    }
    Require(view->contiguous() && view->rank <= kMaxRank, "a contiguous view");
    Require(view->bytes() <= static_cast<int64_t>(bytes.size()), "a tensor is smaller than the file");
    Require(view->empty() || reinterpret_cast<uintptr_t>(view->data) % BlockBytes(view->dtype) == 0,
            "aligned data");
    for (int64_t i = 0; i < view->bytes(); ++i) sum += view->as<uint8_t>()[i];
  }
  Require(absl::IsNotFound(file->tensor("no such tensor, surely").status()), "an unknown name is not found");
  if (sum == UINT64_MAX) std::cerr << "";  // the bytes were read
}

// The first line as a header of the right length, the rest as data: what random bytes seldom are.
void FuzzHeader(std::string_view bytes) {
  const std::string_view header = bytes.substr(0, bytes.find('\n'));
  bytes.remove_prefix(std::min(bytes.size(), header.size() + 1));
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  FuzzReader(file.append(header).append(bytes));
}

// Tensors out of the input: name, dtype, rank and shape from single bytes, the data from what follows.
struct Maker {
  std::string_view rest;

  uint8_t Byte() {
    if (rest.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest[0]);
    rest.remove_prefix(1);
    return byte;
  }
  std::string Bytes(size_t n) {
    std::string bytes(rest.substr(0, n));
    rest.remove_prefix(bytes.size());
    bytes.resize(n);
    return bytes;
  }
};

void FuzzRoundTrip(std::string_view bytes) {
  constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                               DType::kI32, DType::kI64, DType::kU8,  DType::kQ4_0};
  // Memory, not a disk: the writer syncs. Never destroyed, since it is removed at exit.
  static const std::string& folder = *new std::string([] {
    std::string pattern = "/dev/shm/safetensors_fuzz.XXXXXX";
    Require(::mkdtemp(pattern.data()) != nullptr, "a folder below /dev/shm");
    return pattern;
  }());
  static const int registered = std::atexit([] { std::filesystem::remove_all(folder); });
  Require(registered == 0, "a handler for the exit");
  struct Tensor {
    TensorView view;
    std::string data;
  };
  Maker maker = {bytes};
  SafetensorsWriter writer;
  std::map<std::string, Tensor> tensors;  // its elements keep their address
  const int count = maker.Byte() % 8;
  for (int i = 0; i < count; ++i) {
    const std::string name = maker.Bytes(maker.Byte() % 16);
    Tensor tensor;
    TensorView& view = tensor.view;
    view.dtype = kDTypes[maker.Byte() % 8];
    view.rank = maker.Byte() % (kMaxRank + 1);
    for (int d = 0; d < view.rank; ++d) view.shape[static_cast<size_t>(d)] = maker.Byte() % 5;
    view.SetContiguous();
    const bool twice = tensors.contains(name);
    tensor.data = maker.Bytes(static_cast<size_t>(view.elements() * BlockBytes(view.dtype)));
    Tensor& kept = twice ? tensor : tensors.emplace(name, tensor).first->second;
    kept.view.data = kept.data.data();
    const absl::Status added = writer.Add(name, kept.view);
    Require(!added.ok() || !twice, "a name is added once");
    if (!added.ok() && !twice) tensors.erase(name);
  }
  const std::string path = folder + "/t.safetensors";
  const absl::Status written = writer.Write(path);
  Require(written.ok(), "the writer writes");
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  Require(file.ok(), "the reader opens what the writer wrote");
  Require(file->names().size() == tensors.size(), "as many tensors");
  for (const auto& [name, tensor] : tensors) {
    const absl::StatusOr<TensorView> view = file->tensor(name);
    Require(view.ok(), "every tensor is there");
    Require(view->dtype == tensor.view.dtype && view->rank == tensor.view.rank, "same dtype and rank");
    for (int d = 0; d < view->rank; ++d) Require(view->dim(d) == tensor.view.dim(d), "same shape");
    const size_t size = tensor.data.size();
    Require(view->bytes() == static_cast<int64_t>(size), "same size");
    Require(size == 0 || std::memcmp(view->data, tensor.data.data(), size) == 0, "same bytes");
  }
}

}  // namespace
}  // namespace snapkv::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 4) {
    case 0:
      snapkv::runtime::FuzzRoundTrip(rest);
      break;
    case 1:
      snapkv::runtime::FuzzReader(rest);
      break;
    default:
      snapkv::runtime::FuzzHeader(rest);
  }
  return 0;
}
