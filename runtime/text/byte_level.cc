// SPDX-License-Identifier: Apache-2.0
// The byte-level alphabet, computed once.
#include "runtime/text/byte_level.h"

#include <array>

#include "runtime/text/utf8.h"

namespace snapkv::runtime {
namespace {

constexpr int kSymbols = 256 + 68;  // every symbol's code point is below this

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> symbol_of{};
  std::array<int16_t, kSymbols> byte_of{};  // -1: stands for no byte

  constexpr Alphabet() {
    for (auto& byte : byte_of) byte = -1;
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      symbol_of[byte] = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
      byte_of[symbol_of[byte]] = static_cast<int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

char32_t ByteToSymbol(uint8_t byte) { return kAlphabet.symbol_of[byte]; }

std::string BytesToSymbols(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) AppendUtf8(ByteToSymbol(static_cast<uint8_t>(c)), &out);
  return out;
}

std::optional<std::string> SymbolsToBytes(std::string_view symbols) {
  std::string out;
  out.reserve(symbols.size());
  for (size_t pos = 0; pos < symbols.size();) {
    const Utf8Step step = ReadUtf8(symbols, pos);
    if (step.kind != Utf8Step::Kind::kOk || step.code_point >= kSymbols) return std::nullopt;
    const int16_t byte = kAlphabet.byte_of[step.code_point];
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
    pos += step.length;
  }
  return out;
}

}  // namespace snapkv::runtime
