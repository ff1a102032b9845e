// SPDX-License-Identifier: Apache-2.0
// Assembles a GGUF file from its parts.
#include "tests/support/gguf_writer.h"

#include <fstream>

namespace snapkv::testing {
namespace {

void Pad(std::string* bytes, uint64_t alignment) {
  bytes->resize((bytes->size() + alignment - 1) / alignment * alignment, '\0');
}

}  // namespace

std::string GgufBytes(const std::string& value) { return GgufBytes(uint64_t{value.size()}) + value; }

uint32_t GgmlTypeNumber(DType type) {
  constexpr uint32_t kNumbers[] = {0, 28, 1, 30, 26, 27, 24, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14};
  return kNumbers[static_cast<int>(type)];
}

GgufWriter& GgufWriter::AddRaw(const std::string& key, uint32_t type, const std::string& payload) {
  metadata_ += GgufBytes(key) + GgufBytes(type) + payload;
  ++values_;
  return *this;
}

GgufWriter& GgufWriter::SetAlignment(uint32_t alignment) {
  alignment_ = alignment;
  return Add("general.alignment", alignment);
}

GgufWriter& GgufWriter::AddTensor(const std::string& name, DType type, const std::vector<int64_t>& shape,
                                  const std::string& raw) {
  Pad(&data_, alignment_);
  return AddRawTensor(name, std::vector<uint64_t>(shape.rbegin(), shape.rend()), GgmlTypeNumber(type),
                      data_.size(), raw);
}

GgufWriter& GgufWriter::AddRawTensor(const std::string& name, const std::vector<uint64_t>& ne, uint32_t type,
                                     uint64_t offset, const std::string& data) {
  infos_ += GgufBytes(name) + GgufBytes(static_cast<uint32_t>(ne.size()));
  for (const uint64_t n : ne) infos_ += GgufBytes(n);
  infos_ += GgufBytes(type) + GgufBytes(offset);
  data_ += data;
  ++tensors_;
  return *this;
}

GgufWriter& GgufWriter::SetCounts(uint64_t tensors, uint64_t values) {
  tensors_ = tensors;
  values_ = values;
  return *this;
}

std::string GgufWriter::Header() const {
  return "GGUF" + GgufBytes(version_) + GgufBytes(tensors_) + GgufBytes(values_) + metadata_ + infos_;
}

std::vector<uint8_t> GgufWriter::Bytes() const {
  std::string bytes = Header();
  if (!data_.empty()) Pad(&bytes, alignment_);
  bytes += data_;
  return {bytes.begin(), bytes.end()};
}

bool GgufWriter::Write(const std::string& path) const {
  const std::vector<uint8_t> bytes = Bytes();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  return out.good();
}

namespace {

template <class T>
void AddSamples(const std::string& name, T value, GgufWriter* writer) {
  writer->Add("m." + name, value);
  writer->Add("a." + name, std::vector<T>{value, T(), value});
}

}  // namespace

GgufWriter SampleGguf(uint32_t version) {
  GgufWriter writer(version);
  AddSamples<uint8_t>("u8", 2, &writer);
  AddSamples<int8_t>("i8", -2, &writer);
  AddSamples<uint16_t>("u16", 2, &writer);
  AddSamples<int16_t>("i16", -2, &writer);
  AddSamples<uint32_t>("u32", 2, &writer);
  AddSamples<int32_t>("i32", -2, &writer);
  AddSamples<uint64_t>("u64", 2, &writer);
  AddSamples<int64_t>("i64", -2, &writer);
  AddSamples<float>("f32", 2.5f, &writer);
  AddSamples<double>("f64", 2.5, &writer);
  AddSamples<bool>("bool", true, &writer);
  AddSamples<std::string>("string", "text", &writer);
  const std::string inner =
      GgufBytes(GgufTypeNumber<uint16_t>()) + GgufBytes(uint64_t{1}) + GgufBytes(uint16_t{7});
  writer.AddRaw("nested", kGgufArrayNumber,
                GgufBytes(kGgufArrayNumber) + GgufBytes(uint64_t{2}) + inner + inner);
  writer.Add("empty", std::vector<std::string>{});
  for (const DType type : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32, DType::kI64,
                           DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
                           DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    std::string raw(static_cast<size_t>(2 * 256 / BlockElements(type) * BlockBytes(type)), '\0');
    for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<char>(i);
    writer.AddTensor(std::string("t.") + DTypeName(type), type, {2, 256}, raw);
  }
  return writer;
}

}  // namespace snapkv::testing
