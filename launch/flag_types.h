// SPDX-License-Identifier: Apache-2.0
// Kinds of flags that the programs share: checks of one value, bytes with units, words, repeatable texts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "launch/output/progress.h"

namespace snapkv::launch {

// Checks of one value; CLI11 puts the flag's name in front of the text, "" is success.
std::string NotEmpty(const std::string& value);
std::string IsUtf8(const std::string& value);
std::string IsFileName(const std::string& value);  // not "-"
// 0 to 2^64-1: CLI11 takes "-1" for the largest number and cuts what is larger.
std::string IsUnsigned(const std::string& value);
// CLI::Range lets NaN pass.
std::function<std::string(const std::string&)> RealRange(double least, double most);

// A repeatable flag of texts, to be read as results() after parsing: CLI11 would take "[a,b]" for two and
// "{}" for none.
CLI::Option* AddTexts(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                      const std::string& help);

// A flag of bytes, at least `least`, with an optional unit: K, M, G, T are powers of 1024.
CLI::Option* AddBytes(CLI::App& app, const std::string& group, const std::string& name, int64_t& value,
                      const std::string& help, int64_t least = 1);

// A flag that takes one of a few words.
template <class T>
CLI::Option* AddChoice(CLI::App& app, const std::string& group, const std::string& name, T& value,
                       const std::string& help, std::vector<std::pair<std::string, T>> choices) {
  std::string shown, fallback;
  for (const auto& [word, choice] : choices) {
    shown += (shown.empty() ? "" : "|") + word;
    if (choice == value) fallback = word;
  }
  return app
      .add_option_function<std::string>(
          name,
          [&value, choices, name, shown](const std::string& word) {
            for (const auto& [known, choice] : choices) {
              if (word == known) {
                value = choice;
                return;
              }
            }
            throw CLI::ValidationError(name, "'" + word + "' is not one of " + shown);
          },
          help)
      ->type_name(shown)
      ->default_str(fallback)
      ->group(group);
}

// --progress.
void AddProgressFlag(CLI::App& app, const std::string& group, ProgressMode& mode);

}  // namespace snapkv::launch
