// SPDX-License-Identifier: Apache-2.0
// A line's JSON by events of the JSON library, so that what is not needed is never held. What the library
// throws ends here.
#include "launch/input/json_line.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Reads a line's bytes and tells how far the parser is.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// The token at the end of `read` that the parser read completely, so that it is at fault as a whole, or "".
std::string WholeToken(const std::string& read) {
  for (const char* literal : {"true", "false", "null"}) {
    if (read.ends_with(literal)) return literal;
  }
  if (read.size() >= 2 && read[0] == '"' && read.back() == '"') {
    size_t backslashes = 0;
    for (size_t i = read.size() - 1; i > 0 && read[i - 1] == '\\'; --i) ++backslashes;
    return backslashes % 2 == 0 ? read : "";
  }
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (read.empty() || !(digit(read[0]) || read[0] == '-') || !digit(read.back())) return "";
  return read.find_first_not_of("0123456789+-.eE") == std::string::npos ? read : "";
}

// Half of a surrogate pair ("\ud83d") is told from other faults of a string by the library's own description.
// If it put it otherwise, our message would only be more general.
bool IsAboutSurrogates(std::string_view what) {
  return what.substr(0, what.find("; last read")).find("invalid string: surrogate") != std::string_view::npos;
}

// What the JSON parser tells while it reads, turned into a tree of values.
class LineHandler : public nlohmann::json_sax<Json> {
 public:
  LineHandler(std::string_view line, std::string_view ignored, JsonValue* root)
      : line_(line), ignored_(ignored), root_(root), reached_(line.data()), last_(line.data()) {
    if (line.starts_with(kByteOrderMark)) last_ += kByteOrderMark.size();
  }

  const char** reached() { return &reached_; }
  DocumentError TakeError() { return std::move(error_); }

  bool null() override { return Add({}); }
  bool boolean(bool value) override { return Add({.kind = JsonValue::Kind::kBool, .boolean = value}); }
  bool number_integer(Json::number_integer_t value) override {
    return Add({.kind = JsonValue::Kind::kInteger, .integer = value});
  }
  bool number_unsigned(Json::number_unsigned_t value) override {
    return Add({.kind = JsonValue::Kind::kUnsigned, .natural = value});
  }
  bool number_float(Json::number_float_t value, const std::string& written) override {
    return Add({.kind = JsonValue::Kind::kReal, .real = value, .text = written});
  }
  bool string(std::string& value) override {
    return Add({.kind = JsonValue::Kind::kString, .text = std::move(value)});
  }
  bool binary(Json::binary_t&) override { return Fail(last_, "binary data"); }  // not in JSON text
  bool start_object(size_t) override { return Open(JsonValue::Kind::kObject); }
  bool start_array(size_t) override { return Open(JsonValue::Kind::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override;
  bool parse_error(size_t position, const std::string& token, const Json::exception& error) override;

 private:
  bool Fail(const char* at, const std::string& what);
  bool Add(JsonValue value);
  bool Open(JsonValue::Kind kind);
  bool Close();
  bool CheckKeys(const JsonValue& object);
  // Where the value begins that was just read: behind the event before it there are only separators.
  const char* ValueStart() const;
  int64_t Column(const char* at) const { return at - line_.data() + 1; }

  std::string_view line_;
  std::string_view ignored_;
  JsonValue* root_;
  const char* reached_;           // by the parser
  const char* last_;              // end of the last event
  std::vector<JsonValue*> open_;  // arrays and objects around the next value
  int depth_ = 0;
  int skipped_below_ = 0;  // values at a depth above this are not kept; 0: all are
  int64_t values_ = 0;
  std::string key_;
  int64_t key_column_ = 0;
  DocumentError error_;
};

bool LineHandler::Fail(const char* at, const std::string& what) {
  error_ = {InvalidArgument(what), "LINE_INVALID", 0, Column(at)};
  return false;
}

const char* LineHandler::ValueStart() const {
  const char* at = last_;
  const char* const end = line_.data() + line_.size();
  while (at < end && std::string_view(" \t\r\n,:").find(*at) != std::string_view::npos) ++at;
  return at;
}

bool LineHandler::Add(JsonValue value) {
  const char* const start = ValueStart();
  value.column = Column(start);
  last_ = reached_;
  if (depth_ == 0 && !value.is_object()) {
    return Fail(start, absl::StrCat("the line is ", Shown(value), ", expected a JSON object {...}"));
  }
  if (skipped_below_ != 0 && depth_ >= skipped_below_) return true;
  if (++values_ > kMaxJsonValues) {
    return Fail(start, absl::StrCat("the line holds more than ", kMaxJsonValues, " values"));
  }
  if (depth_ == 0) {
    *root_ = std::move(value);
    return true;
  }
  JsonValue& parent = *open_.back();
  if (parent.is_object()) {
    value.key = std::move(key_);
    value.key_column = key_column_;
  }
  parent.in.push_back(std::move(value));
  return true;
}

bool LineHandler::Open(JsonValue::Kind kind) {
  if (depth_ >= kMaxJsonDepth) {
    return Fail(ValueStart(), absl::StrCat("the JSON is nested more than ", kMaxJsonDepth, " levels deep"));
  }
  if (!Add({.kind = kind})) return false;
  ++depth_;
  if (skipped_below_ != 0 && depth_ > skipped_below_) return true;
  open_.push_back(depth_ == 1 ? root_ : &open_.back()->in.back());
  return true;
}

bool LineHandler::Close() {
  last_ = reached_;
  const bool kept = skipped_below_ == 0 || depth_ <= skipped_below_;
  --depth_;
  if (!kept) return true;
  const JsonValue* closed = open_.back();
  open_.pop_back();
  return !closed->is_object() || CheckKeys(*closed);
}

bool LineHandler::key(std::string& name) {
  const char* const end = line_.data() + line_.size();
  key_column_ = Column(std::find(last_, end, '"'));
  last_ = reached_;
  if (depth_ == 1) skipped_below_ = name == ignored_ ? 1 : 0;
  key_ = std::move(name);
  return true;
}

bool LineHandler::CheckKeys(const JsonValue& object) {
  std::vector<const JsonValue*> order;
  for (const JsonValue& member : object.in) order.push_back(&member);
  std::sort(order.begin(), order.end(), [](const JsonValue* a, const JsonValue* b) {
    return std::pair(std::string_view(a->key), a->key_column) <
           std::pair(std::string_view(b->key), b->key_column);
  });
  const auto twice = std::adjacent_find(
      order.begin(), order.end(), [](const JsonValue* a, const JsonValue* b) { return a->key == b->key; });
  if (twice == order.end()) return true;
  const JsonValue& second = **(twice + 1);
  return Fail(line_.data() + second.key_column - 1,
              absl::StrCat("the key ", ShownText(second.key), " occurs twice in one object"));
}

bool LineHandler::parse_error(size_t position, const std::string& token, const Json::exception& error) {
  constexpr int kNumberOverflow = 406;  // documented by the library as out_of_range.406
  // `position` counts the bytes read, so it is the column of the last; the end of the line counts as one
  // byte.
  size_t column = std::clamp<size_t>(position, 1, line_.size() + 1);
  const char* at = line_.data() + column - 1;
  if (column > line_.size()) return Fail(at, "not JSON: the line ends before its object does");
  if (IsAboutSurrogates(error.what())) {
    return Fail(at, "not JSON: half of a surrogate pair (\\ud800 to \\udfff): both halves must be there");
  }
  const std::string whole = WholeToken(token);
  if (!whole.empty() && whole.size() <= column) {
    column -= whole.size() - 1;
    at = line_.data() + column - 1;
    if (error.id == kNumberOverflow) return Fail(at, "not JSON: a number that is too large");
    return Fail(at, "not JSON: unexpected " + (whole[0] == '"' ? "string" : ShownText(whole)));
  }
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x20) {
    return Fail(at, absl::StrFormat("not JSON: a control character (byte 0x%02x) that is not escaped", byte));
  }
  const int length = runtime::ReadUtf8(line_, column - 1).length;
  return Fail(at, "not JSON: unexpected " + ShownText(line_.substr(column - 1, static_cast<size_t>(length))));
}

}  // namespace

JsonValue* JsonValue::Find(std::string_view name) {
  const auto it = std::find_if(in.begin(), in.end(), [name](const JsonValue& v) { return v.key == name; });
  return it == in.end() ? nullptr : &*it;
}

const JsonValue* JsonValue::Find(std::string_view name) const {
  return const_cast<JsonValue*>(this)->Find(name);
}

std::string ShownText(std::string_view text) {
  constexpr size_t kMostBytes = 40;
  std::string shown = "'";
  for (size_t pos = 0; pos < text.size();) {
    if (shown.size() > kMostBytes) {
      shown += "...";
      break;
    }
    const runtime::Utf8Step step = runtime::ReadUtf8(text, pos);
    if (step.kind != runtime::Utf8Step::Kind::kOk) {
      runtime::AppendUtf8(runtime::kReplacementCharacter, &shown);
    } else if (step.code_point < 0x20 || (step.code_point >= 0x7F && step.code_point < 0xA0)) {
      absl::StrAppendFormat(&shown, "\\u%04x", static_cast<unsigned>(step.code_point));
    } else {
      shown.append(text, pos, static_cast<size_t>(step.length));
    }
    pos += static_cast<size_t>(step.length);
  }
  return shown + "'";
}

std::string Shown(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return value.boolean ? "true" : "false";
    case JsonValue::Kind::kInteger:
      return absl::StrCat(value.integer);
    case JsonValue::Kind::kUnsigned:
      return absl::StrCat(value.natural);
    case JsonValue::Kind::kReal:
      return value.text.size() <= 40 ? value.text : value.text.substr(0, 40) + "...";
    case JsonValue::Kind::kString:
      return absl::StrCat("the string ", ShownText(value.text));
    case JsonValue::Kind::kArray:
      return "an array";
    case JsonValue::Kind::kObject:
      return "an object";
  }
  return "";
}

DocumentError ParseJsonLine(std::string_view line, std::string_view ignored, JsonValue& value) {
  const auto invalid = [](size_t offset, const std::string& what) {
    return DocumentError{InvalidArgument(what), "LINE_INVALID", 0, static_cast<int64_t>(offset) + 1};
  };
  // Looked for here because the library takes a NUL byte for the end.
  if (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF")) {
    return invalid(0, "not UTF-8: it begins like UTF-16; convert it, e.g. with iconv -f utf-16 -t utf-8");
  }
  if (const size_t nul = line.find('\0'); nul != std::string_view::npos) {
    return invalid(nul, "not JSON: a NUL byte; is this a text file?");
  }
  if (const auto bad = runtime::ValidateUtf8(line); bad.has_value()) {
    return invalid(*bad, "not UTF-8; JSONL files are always UTF-8: convert it, e.g. with iconv -t utf-8");
  }
  LineHandler handler(line, ignored, &value);
  try {
    const CountingIterator begin(line.data(), handler.reached());
    const CountingIterator end(line.data() + line.size(), handler.reached());
    if (Json::sax_parse(begin, end, &handler)) return {};
  } catch (const Json::exception&) {  // not seen: the handler is told of errors instead
    return invalid(0, "not JSON");
  } catch (const std::bad_alloc&) {
    return {ResourceExhausted("not enough memory to parse the line; lower --max-line-bytes"), "LINE_INVALID"};
  }
  return handler.TakeError();
}

}  // namespace snapkv::launch
