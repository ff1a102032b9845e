// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers as PCRE2 patterns. Only this file includes PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/text/pretokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/base/status.h"
#include "runtime/text/nfc.h"

namespace snapkv::runtime {
namespace {

// Unicode's White_Space property, which the tokenizers' \s means. PCRE2's own \s has U+180E as well.
#define SPACES \
  R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define ANY_SPACE "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"

// A run of white space leaves its last character to the word after it.
#define SPACE_RUN ANY_SPACE "+(?!" NOT_SPACE ")|" ANY_SPACE "+"
#define SUFFIXES "'s|'t|'re|'ve|'m|'ll|'d"

// Every pattern matches at every place of every non-empty text, so it is compiled anchored.
constexpr char kGpt2[] = SUFFIXES R"(| ?\p{L}+| ?\p{N}+| ?[^\p{L}\p{N})" SPACES "]+|" SPACE_RUN;

// SmolLM first isolates each digit and then applies GPT-2's pattern to what lies between; in one pattern: no
// piece holds digits, and a digit ends a run of white space as the end of the text does.
constexpr char kSmolLm[] = R"(\p{N}|)" SUFFIXES R"(| ?\p{L}+| ?[^\p{L}\p{N})" SPACES "]+|" ANY_SPACE
                           R"(+(?![^\p{N})" SPACES "])|" ANY_SPACE "+";

#define MODERN(DIGITS)                                                                \
  "(?i:" SUFFIXES R"()|[^\r\n\p{L}\p{N}]?\p{L}+|)" DIGITS R"(| ?[^\p{L}\p{N})" SPACES \
  R"(]+[\r\n]*|)" ANY_SPACE R"(*[\r\n]+|)" SPACE_RUN
constexpr char kLlama3[] = MODERN(R"(\p{N}{1,3})");
constexpr char kQwen2[] = MODERN(R"(\p{N})");

struct Kind {
  const char* name;
  const char* pattern;
  bool nfc;
  bool whole_piece_first;
  bool adds_bos;
};

constexpr std::array<Kind, 7> kKinds = {{
    {"smollm", kSmolLm, false, false, false},
    {"gpt-2", kGpt2, false, false, false},
    {"gpt2", kGpt2, false, false, false},
    {"llama-bpe", kLlama3, false, true, true},
    {"llama3", kLlama3, false, true, true},
    {"llama-v3", kLlama3, false, true, true},
    {"qwen2", kQwen2, true, false, false},
}};

// nullptr when the name is unknown.
const Kind* FindKind(const std::string& name) {
  const auto* kind =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return name == k.name; });
  return kind == kKinds.end() ? nullptr : kind;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

struct JitStackDeleter {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

std::string Pcre2Message(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct PreTokenizer::Impl {
  Kind kind;
  PreTokenizerLimits limits;
  std::unique_ptr<pcre2_code, CodeDeleter> code;
};

namespace {

// What one walk over a text needs beside the pattern.
struct Matcher {
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context;
  std::unique_ptr<pcre2_jit_stack, JitStackDeleter> stack;  // null: 32 KiB of the thread's own
};

absl::StatusOr<Matcher> MakeMatcher(const PreTokenizerLimits& limits, size_t text_bytes) {
  Matcher matcher;
  matcher.data.reset(pcre2_match_data_create(1, nullptr));
  matcher.context.reset(pcre2_match_context_create(nullptr));
  if (matcher.data == nullptr || matcher.context == nullptr) {
    return ResourceExhausted("no memory for pre-tokenizing");
  }
  // Giving a run of white space back costs one step per character; nothing in the patterns costs more.
  constexpr size_t kMaxLimit = std::numeric_limits<uint32_t>::max();
  const size_t steps = std::min(kMaxLimit, 10'000'000 + std::min(kMaxLimit, 4 * text_bytes));
  pcre2_set_match_limit(matcher.context.get(),
                        limits.match != 0 ? limits.match : static_cast<uint32_t>(steps));
  if (limits.heap_kib != 0) pcre2_set_heap_limit(matcher.context.get(), limits.heap_kib);
  if (limits.jit_stack_bytes != 0) {
    matcher.stack.reset(pcre2_jit_stack_create(limits.jit_stack_bytes, limits.jit_stack_bytes, nullptr));
    if (matcher.stack == nullptr) return ResourceExhausted("no memory for pre-tokenizing");
    pcre2_jit_stack_assign(matcher.context.get(), nullptr, matcher.stack.get());
  }
  return matcher;
}

}  // namespace

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;
bool PreTokenizer::whole_piece_first() const { return impl_->kind.whole_piece_first; }

bool AddsBosByDefault(const std::string& pre) {
  const Kind* kind = FindKind(pre);
  return kind != nullptr && kind->adds_bos;
}

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const std::string& name) { return CreateForTest(name, {}); }

absl::StatusOr<PreTokenizer> PreTokenizer::CreateForTest(const std::string& name,
                                                         const PreTokenizerLimits& limits,
                                                         const std::string& pattern) {
  const Kind* kind = FindKind(name);
  if (kind == nullptr) {
    const std::string known =
        absl::StrJoin(kKinds, ", ", [](std::string* out, const Kind& k) { out->append(k.name); });
    if (name.empty() || name == "default") {
      return InvalidArgument(
          "tokenizer.ggml.pre is ", name.empty() ? "missing" : "'default'",
          ": the file does not say how text is cut before merging, and a guess would silently ",
          "give wrong tokens. Convert the model again with a current converter. Known: ", known);
    }
    return InvalidArgument("tokenizer.ggml.pre '", name, "' is not supported; known: ", known);
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->kind = *kind;
  impl->limits = limits;
  const char* source = pattern.empty() ? kind->pattern : pattern.c_str();
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source), PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_START_OPTIMIZE, &error,
                                 &offset, nullptr));
  if (impl->code == nullptr) {
    return Internal("pre-tokenizer pattern '", name, "' at ", offset, ": ", Pcre2Message(error));
  }
  // Without JIT (no executable memory allowed, other CPU) the interpreter gives the same matches, more
  // slowly.
  if (!limits.interpret) pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);
  return PreTokenizer(std::move(impl));
}

absl::Status PreTokenizer::Split(std::string_view text,
                                 absl::FunctionRef<absl::Status(std::string_view)> piece) const {
  std::string normalized;
  if (impl_->kind.nfc && !IsCertainlyNfc(text)) {
    ASSIGN_OR_RETURN(normalized, NormalizeNfc(text));
    text = normalized;
  }
  ASSIGN_OR_RETURN(const Matcher matcher, MakeMatcher(impl_->limits, text.size()));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t pos = 0; pos < text.size();) {
    // The text is known to be UTF-8; checking it in every call would be quadratic.
    const auto match = [&](uint32_t options) {
      return pcre2_match(impl_->code.get(), subject, text.size(), pos, PCRE2_NO_UTF_CHECK | options,
                         matcher.data.get(), matcher.context.get());
    };
    int found = match(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
    if (found < 0) {
      return ResourceExhausted("pre-tokenizing ('", impl_->kind.name, "') stopped at byte ", pos, " of ",
                               text.size(), ": ", Pcre2Message(found));
    }
    const size_t end = pcre2_get_ovector_pointer(matcher.data.get())[1];
    if (end <= pos) return Internal("pre-tokenizer '", impl_->kind.name, "' does not advance at byte ", pos);
    RETURN_IF_ERROR(piece(text.substr(pos, end - pos)));
    pos = end;
  }
  return absl::OkStatus();
}

}  // namespace snapkv::runtime
