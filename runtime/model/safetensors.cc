// SPDX-License-Identifier: Apache-2.0
// The safetensors reader: every number of the header is checked against the file before it is used.
#include "runtime/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"

namespace snapkv::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is used as it lies in the file");

using Json = nlohmann::json;

constexpr int64_t kPrefixBytes = 8;
// The format's own limit; a larger header is a damaged file or an attack on our memory.
constexpr int64_t kMaxHeaderBytes = 100'000'000;
// {name: {key: [numbers]}}: nothing legal nests deeper.
constexpr int kMaxDepth = 3;
constexpr char kAdvice[] = "; the file is damaged or is not a safetensors file: fetch it again";

struct DTypeEntry {
  const char* name;
  int64_t bytes;
  bool supported;
  DType dtype;
};

// Dtypes of the format with whole bytes. Those without a DType of ours are known by size only.
constexpr DTypeEntry kDTypes[] = {
    {"F32", 4, true, DType::kF32},   {"F64", 8, true, DType::kF64}, {"F16", 2, true, DType::kF16},
    {"BF16", 2, true, DType::kBF16}, {"I32", 4, true, DType::kI32}, {"I64", 8, true, DType::kI64},
    {"U8", 1, true, DType::kU8},     {"BOOL", 1, false, {}},        {"I8", 1, false, {}},
    {"F8_E4M3", 1, false, {}},       {"F8_E5M2", 1, false, {}},     {"F8_E8M0", 1, false, {}},
    {"I16", 2, false, {}},           {"U16", 2, false, {}},         {"U32", 4, false, {}},
    {"U64", 8, false, {}},           {"C64", 8, false, {}},
};

const DTypeEntry* FindDType(const std::string& name) {
  for (const DTypeEntry& t : kDTypes) {
    if (name == t.name) return &t;
  }
  return nullptr;
}

// A name from the file, safe to print and of bounded length.
std::string Quoted(const std::string& name) {
  constexpr size_t kLongest = 200;
  const std::string shown = name.size() <= kLongest ? name : name.substr(0, kLongest) + "...";
  return "'" + absl::CHexEscape(shown) + "'";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

// Product of the dimensions times `element_bytes`. Zero dimensions do not excuse the others: strides multiply
// those.
bool TensorBytes(const std::vector<int64_t>& shape, int64_t element_bytes, int64_t* bytes) {
  int64_t n = element_bytes;
  bool empty = false;
  for (const int64_t d : shape) {
    empty = empty || d == 0;
    if (__builtin_mul_overflow(n, std::max<int64_t>(d, 1), &n)) return false;
  }
  *bytes = empty ? 0 : n;
  return true;
}

// The header as JSON. Exceptions of the JSON library end here. `text` is not NUL-terminated.
absl::StatusOr<Json> ParseJson(const char* text, size_t bytes) {
  std::vector<std::set<std::string>> keys(kMaxDepth + 2);
  std::string problem;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth) {
      problem = "nested too deeply";
      return false;
    }
    if (event == Json::parse_event_t::object_start) keys[static_cast<size_t>(depth) + 1].clear();
    if (event == Json::parse_event_t::key && depth <= kMaxDepth) {
      std::string key = value.get<std::string>();
      if (!keys[static_cast<size_t>(depth)].insert(key).second)
        problem = "the name " + Quoted(key) + " occurs twice";
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, text + bytes, watch);
  } catch (const Json::exception& e) {
    return DataLoss("its header is not JSON: ", absl::CHexEscape(std::string(e.what()).substr(0, 300)));
  }
  if (!problem.empty()) return DataLoss("its header is malformed: ", problem);
  if (!json.is_object()) return DataLoss("its header is not a JSON object");
  return json;
}

absl::Status CheckMetadata(const Json& metadata) {
  if (!metadata.is_object()) return DataLoss("__metadata__ is not an object");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) return DataLoss("__metadata__ entry ", Quoted(key), " is not a string");
  }
  return absl::OkStatus();
}

// `json` as an array of non-negative integers that fit int64.
absl::StatusOr<std::vector<int64_t>> Integers(const Json& object, const char* field) {
  const auto it = object.find(field);
  if (it == object.end()) return DataLoss("it has no '", field, "'");
  if (!it->is_array()) return DataLoss("'", field, "' is not an array");
  std::vector<int64_t> values;
  for (const Json& v : *it) {
    if (!v.is_number_unsigned() || v.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      return DataLoss("'", field, "' holds something that is not an integer from 0 to 2^63 - 1");
    }
    values.push_back(static_cast<int64_t>(v.get<uint64_t>()));
  }
  return values;
}

}  // namespace

absl::Status SafetensorsFile::ParseHeader() {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.bytes().data(), sizeof(header_bytes));
  if (header_bytes > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return DataLoss("its header claims ", header_bytes, " bytes, more than the format's limit of ",
                    kMaxHeaderBytes);
  }
  if (header_bytes > static_cast<uint64_t>(file_bytes() - kPrefixBytes)) {
    return DataLoss("its header claims ", header_bytes, " bytes, but the file has only ", file_bytes());
  }
  data_start_ = kPrefixBytes + static_cast<int64_t>(header_bytes);
  ASSIGN_OR_RETURN(
      const Json header,
      ParseJson(reinterpret_cast<const char*>(file_.bytes().data()) + kPrefixBytes, header_bytes));
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      RETURN_IF_ERROR(CheckMetadata(json));
      continue;
    }
    const std::string what = "tensor " + Quoted(name);
    if (!json.is_object()) return DataLoss(what, ": its entry is not an object");
    const auto dtype = json.find("dtype");
    if (dtype == json.end() || !dtype->is_string()) return DataLoss(what, ": it has no 'dtype'");
    Entry entry;
    entry.dtype = dtype->get<std::string>();
    absl::StatusOr<std::vector<int64_t>> shape = Integers(json, "shape");
    if (!shape.ok()) return Annotate(shape.status(), what);
    entry.shape = *std::move(shape);
    const absl::StatusOr<std::vector<int64_t>> offsets = Integers(json, "data_offsets");
    if (!offsets.ok()) return Annotate(offsets.status(), what);
    if (offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
      return DataLoss(what, ": data_offsets ", ShapeText(*offsets), " is not a range [begin, end]");
    }
    entry.begin = (*offsets)[0];
    entry.end = (*offsets)[1];

    const DTypeEntry* type = FindDType(entry.dtype);
    if (type == nullptr) return DataLoss(what, ": its dtype ", Quoted(entry.dtype), " is unknown");
    int64_t bytes = 0;
    if (!TensorBytes(entry.shape, type->bytes, &bytes)) {
      return DataLoss(what, ": ", entry.dtype, " of shape ", ShapeText(entry.shape),
                      " has more than 2^63 bytes");
    }
    if (entry.end - entry.begin != bytes) {
      return DataLoss(what, ": ", entry.dtype, " of shape ", ShapeText(entry.shape), " needs ", bytes,
                      " bytes, but data_offsets ", ShapeText(*offsets), " gives it ",
                      entry.end - entry.begin);
    }
    entries_.emplace(name, std::move(entry));
  }
  return CheckTiling();
}

// The ranges, in order, must cover the data section exactly: a gap or an overlap means that some tensor is
// not where the header says.
absl::Status SafetensorsFile::CheckTiling() const {
  std::vector<std::pair<const std::string*, const Entry*>> order;
  for (const auto& [name, entry] : entries_) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  const int64_t data_bytes = file_bytes() - data_start_;
  int64_t cursor = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin != cursor) {
      return DataLoss("tensor ", Quoted(*name), ": its data begins at byte ", entry->begin,
                      entry->begin < cursor ? ", inside the tensor before it, which ends at "
                                            : ", but the tensor before it ends at ",
                      cursor);
    }
    if (entry->end > data_bytes) {
      return DataLoss("tensor ", Quoted(*name), ": its data ends at byte ", entry->end,
                      " of a data section of ", data_bytes, " bytes");
    }
    cursor = entry->end;
  }
  if (cursor != data_bytes) {
    return DataLoss("its data section has ", data_bytes, " bytes, but its tensors end at ", cursor);
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  ASSIGN_OR_RETURN(file.file_, MappedFile::Open(path));
  if (file.file_bytes() < kPrefixBytes + 2) {
    return DataLoss("'", path, "' has ", file.file_bytes(), " bytes, fewer than the smallest header",
                    kAdvice);
  }
  if (const absl::Status status = file.ParseHeader(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("'", path, "': ", status.message(), kAdvice));
  }
  return file;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

absl::StatusOr<TensorView> SafetensorsFile::tensor(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    return NotFound("'", path_, "' has no tensor ", Quoted(name), " among its ", entries_.size());
  }
  const Entry& entry = it->second;
  const DTypeEntry& type = *FindDType(entry.dtype);
  if (!type.supported) {
    return Unimplemented("'", path_, "': tensor ", Quoted(name), " has dtype ", entry.dtype,
                         ", which is not supported: convert the file to F32, F16 or BF16");
  }
  if (entry.shape.size() > kMaxRank) {
    return Unimplemented("'", path_, "': tensor ", Quoted(name), " of shape ", ShapeText(entry.shape),
                         " has more than ", kMaxRank, " dimensions");
  }
  TensorView view;
  view.dtype = type.dtype;
  view.rank = static_cast<int>(entry.shape.size());
  std::copy(entry.shape.begin(), entry.shape.end(), view.shape.begin());
  view.SetContiguous();
  view.data = const_cast<uint8_t*>(file_.bytes().data()) + data_start_ + entry.begin;
  if ((data_start_ + entry.begin) % type.bytes == 0) return view;

  const std::lock_guard<std::mutex> lock(copies_->mutex);
  std::unique_ptr<std::byte[]>& copy = copies_->data[name];
  if (copy == nullptr) {
    const size_t bytes = static_cast<size_t>(entry.end - entry.begin);
    copy.reset(new (std::nothrow) std::byte[std::max<size_t>(bytes, 1)]);
    if (copy == nullptr) {
      return ResourceExhausted("'", path_, "': no memory for a copy of ", bytes, " bytes of tensor ",
                               Quoted(name));
    }
    std::memcpy(copy.get(), view.data, bytes);
  }
  view.data = copy.get();
  return view;
}

}  // namespace snapkv::runtime
