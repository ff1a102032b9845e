// SPDX-License-Identifier: Apache-2.0
// A small recursive reading of ListJobs filters.
#include "runtime/service/job_filter.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "runtime/service/reason.h"

namespace snapkv::service {
namespace {

constexpr size_t kMaxTerms = 16;
constexpr char kFields[] = "state, model, display_name or labels.KEY";

class FilterReader {
 public:
  explicit FilterReader(const std::string& text) : text_(text) {}

  absl::StatusOr<std::vector<FilterTerm>> Read() {
    std::vector<FilterTerm> terms;
    SkipSpace();
    if (AtEnd()) return terms;
    while (true) {
      if (terms.size() == kMaxTerms) return Error(absl::StrCat("at most ", kMaxTerms, " terms"));
      ASSIGN_OR_RETURN(terms.emplace_back(), ReadTerm());
      if (AtEnd()) return terms;
      // White space has been skipped; there must have been some.
      const bool spaced = absl::ascii_isspace(text_[at_ - 1]);
      if (!spaced || Word() != "AND") return Error("' AND ' between two terms");
    }
  }

 private:
  absl::StatusOr<FilterTerm> ReadTerm() {
    SkipSpace();
    const size_t begin = at_;
    const std::string name = Word();
    FilterTerm term;
    if (name == "state") {
      term.field = FilterTerm::Field::kState;
    } else if (name == "model") {
      term.field = FilterTerm::Field::kModel;
    } else if (name == "display_name") {
      term.field = FilterTerm::Field::kDisplayName;
    } else if (absl::StartsWith(name, "labels.")) {
      term.field = FilterTerm::Field::kLabel;
      term.key = name.substr(7);
      if (term.key.empty()) {
        ASSIGN_OR_RETURN(term.key, Quoted());
      }
    } else {
      at_ = begin;
      return Error(kFields);
    }
    SkipSpace();
    if (AtEnd() || text_[at_] != '=') return Error("'='");
    ++at_;
    SkipSpace();
    const size_t value = at_;
    if (!AtEnd() && text_[at_] == '"') {
      ASSIGN_OR_RETURN(term.value, Quoted());
    } else if (term.field == FilterTerm::Field::kState) {
      term.value = Word();
    } else {
      return Error("a value in double quotes");
    }
    if (term.field == FilterTerm::Field::kState &&
        (!v1::Job::State_Parse(term.value, &term.state) || term.state == v1::Job::STATE_UNSPECIFIED)) {
      at_ = value;
      return Error("a state, such as QUEUED or RUNNING");
    }
    SkipSpace();
    return term;
  }

  // Perhaps empty.
  std::string Word() {
    const size_t begin = at_;
    while (!AtEnd() &&
           (absl::ascii_isalnum(text_[at_]) || absl::StrContains("_-./:", text_.substr(at_, 1)))) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  absl::StatusOr<std::string> Quoted() {
    if (AtEnd() || text_[at_] != '"') return Error("a name or a text in double quotes");
    std::string value;
    for (++at_; !AtEnd(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        return value;
      }
      if (text_[at_] == '\\') {
        ++at_;
        if (AtEnd() || (text_[at_] != '"' && text_[at_] != '\\')) return Error("\\\" or \\\\");
      }
      value += text_[at_];
    }
    return Error("a closing double quote");
  }

  absl::Status Error(const std::string& expected) const {
    return ServiceError(Reason::kParameterInvalid, "filter, column ", at_ + 1, ": expected ", expected,
                        "; example: state = QUEUED AND labels.team = \"a\"");
  }
  bool AtEnd() const { return at_ == text_.size(); }
  void SkipSpace() {
    while (!AtEnd() && absl::ascii_isspace(text_[at_])) ++at_;
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<FilterTerm>> ParseFilter(const std::string& filter) {
  return FilterReader(filter).Read();
}

}  // namespace snapkv::service
