// SPDX-License-Identifier: Apache-2.0
// The byte-level alphabet: vocabularies of byte-level BPE spell every byte as one printable character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace snapkv::runtime {

// The code point that stands for a byte: itself for the printable Latin-1 characters (21-7E, A1-AC, AE-FF),
// and U+0100, U+0101, ... for the 68 other bytes in ascending order. The mapping is the published one of
// GPT-2.
char32_t ByteToSymbol(uint8_t byte);

// The spelling of bytes in the vocabulary, e.g. " a" -> "\u0120a".
std::string BytesToSymbols(std::string_view bytes);

// The inverse; nullopt when `symbols` is not UTF-8 or has a character that stands for no byte.
std::optional<std::string> SymbolsToBytes(std::string_view symbols);

}  // namespace snapkv::runtime
