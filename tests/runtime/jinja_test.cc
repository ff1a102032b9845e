// SPDX-License-Identifier: Apache-2.0
// The template language: 450 cases whose results Jinja2 itself gave (jinja_cases.jsonl), error messages,
// limits, and the chat template interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/text/chat_template.h"
#include "runtime/text/jinja/parser.h"
#include "runtime/text/jinja/renderer.h"
#include "tests/support/golden.h"

namespace snapkv::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::vector<std::pair<std::string, jinja::Value>>;

absl::StatusOr<std::string> Render(const std::string& source, const Variables& variables = {},
                                   jinja::RenderOptions options = {}) {
  ASSIGN_OR_RETURN(const std::vector<jinja::Stmt> body, jinja::Parse(source));
  return jinja::Render(body, variables, options);
}

// The JSON library sorts keys, so the dicts of jinja_cases.jsonl are in alphabetical order.
jinja::Value FromJson(const nlohmann::json& json) {
  if (json.is_null()) return jinja::Value::None();
  if (json.is_boolean()) return jinja::Value::Bool(json.get<bool>());
  if (json.is_number_integer()) return jinja::Value::Int(json.get<int64_t>());
  if (json.is_number_float()) return jinja::Value::Float(json.get<double>());
  if (json.is_string()) return jinja::Value::String(json.get<std::string>());
  if (json.is_array()) {
    jinja::ValueList items;
    for (const auto& item : json) items.push_back(FromJson(item));
    return jinja::Value::List(std::move(items)).value();
  }
  jinja::ValueDict entries;
  for (const auto& [key, value] : json.items())
    entries.emplace_back(jinja::Value::String(key), FromJson(value));
  return jinja::Value::Dict(std::move(entries)).value();
}

Variables VariablesFromJson(const nlohmann::json& json) {
  Variables variables;
  for (const auto& [name, value] : json.items()) variables.emplace_back(name, FromJson(value));
  return variables;
}

TEST(Jinja, AgreesWithJinja2) {
  const auto lines = testing::LoadJsonLines(testing::SourceFolder() + "/tests/runtime/jinja_cases.jsonl");
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_GT(lines->size(), 400u);
  const Variables variables = VariablesFromJson(lines->front().at("variables"));
  int compared = 0;
  for (size_t i = 1; i < lines->size(); ++i) {
    const nlohmann::json& record = (*lines)[i];
    const std::string source = record.at("template");
    const absl::StatusOr<std::string> out = Render(source, variables);
    if (record.contains("error")) {
      ASSERT_FALSE(out.ok()) << source << "\nJinja2 raises " << record.at("error") << ", here: " << *out;
      EXPECT_THAT(out.status().ToString(), HasSubstr("chat template, line ")) << source;
    } else {
      ASSERT_TRUE(out.ok()) << source << "\n" << out.status();
      EXPECT_EQ(*out, record.at("out").get<std::string>()) << source;
    }
    ++compared;
  }
  std::printf("jinja: %d cases compared\n", compared);
}

// Where this language stops and Jinja2 goes on.
TEST(Jinja, DeliberateDifferences) {
  EXPECT_THAT(Render("{{ 9223372036854775807 + 1 }}").status().ToString(), HasSubstr("range of 64 bits"));
  EXPECT_THAT(Render("{{ 9223372036854775808 }}").status().ToString(), HasSubstr("out of range"));
  EXPECT_THAT(Render("{{ '%s' % 1 }}").status().ToString(), HasSubstr("operator '%'"));
  EXPECT_EQ(Render("{{ {'a': 1}.items() }}").value(), "[('a', 1)]");
  EXPECT_EQ(Render("{{ '\xC3\x9F\xC5\x89' | upper }}").value(), "SS\xC5\x89")
      << "case maps are one to one, except sharp s";
}

TEST(Jinja, ErrorsNameTheLineAndTheCulprit) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% foo %}", "line 2: unknown or misplaced statement 'foo'"},
      {"\n\n{{ x | nofilter }}", "line 3: unknown filter 'nofilter'"},
      {"{{ x is notest }}", "line 1: unknown test 'notest'"},
      {"{{ 'a'.nomethod() }}", "a string has no method 'nomethod'"},
      {"{{ nofunction() }}", "unknown function 'nofunction'"},
      {"{{ loop.nothing }}", "'loop' is undefined"},
      {"{% for i in [1] %}{{ loop.nothing }}{% endfor %}", "no attribute 'nothing'"},
      {"{{ a.b }}", "'a' is undefined, so it has no 'b'"},
      {"{{ {}.a.b }}", "'a' is undefined, so it has no 'b'"},
      {"{{ 'a' + 1 }}", "operator '+' cannot take a string and an integer"},
      {"{{ 'a' + none }}", "operator '+' cannot take a string and none"},
      {"{{ 'a' + b }}", "'b' is undefined"},
      {"{{ x", "'{{' is never closed by '}}'"},
      {"{% if x %}", "expected {% endif %}, found the end of the template"},
      {"\n{# x", "line 2: a comment '{#' is never closed"},
      {"{% raw %}x", "never closed by '{% endraw %}'"},
      {"{{ 'abc }}", "a string is never closed"},
      {"{{ a ? b }}", "unexpected character '?'"},
      {"{{ (1 }}", "closes no bracket"},
      {"{{ 0x10 }}", "only decimal numbers"},
      {"{{ '\\ud800' }}", "bad \\x, \\u or \\U escape"},
      {"{% include 'x' %}", "'include'"},
      {"{% for x in y recursive %}{% endfor %}", "recursive for loops are not supported"},
      {"{% for x in [1] %}{% macro m() %}{% endmacro %}{% endfor %}", "macro inside"},
      {"{{ f(*x) }}", "'*' or '**' are not supported"},
      {"{% set x.y = 1 %}", "'x' is not a namespace"},
      {"{% set a, b = [1, 2, 3] %}", "cannot unpack 3 values into 2 variables"},
      {"{% break %}", "only inside a for loop"},
      {"{{ [1] | join(1, 2, 3) }}", "filter 'join' takes at most 2 arguments"},
      {"{{ [1] | join(sep=1) }}", "filter 'join' has no parameter 'sep'"},
      {"{{ 'a' | replace('b') }}", "filter 'replace' needs the argument 'new'"},
      {"{{ namespace() }}", "a namespace cannot be printed"},
      {"{{ range | tojson }}", "tojson cannot express a function"},
      {"a\r\nb\r{{ 1 / 0 }}", "line 3: division by zero"},
      {"{{ '\n\n' }}{{ x.y }}", "line 3: 'x' is undefined"},
  };
  for (const auto& [source, message] : cases) {
    const absl::StatusOr<std::string> out = Render(source);
    ASSERT_FALSE(out.ok()) << source << " gives " << *out;
    EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument) << source;
    EXPECT_THAT(out.status().ToString(), HasSubstr(message)) << source;
  }
}

// What is not understood does no harm where it is not reached, as the tool branches of large templates.
TEST(Jinja, UnknownNamesMatterWhenReached) {
  EXPECT_EQ(Render("{% if tools %}{{ tools | groupby('x') }}{% endif %}ok").value(), "ok");
}

TEST(Jinja, RaiseExceptionGivesItsMessage) {
  const auto out = Render("\n{{ raise_exception('roles must ' ~ 'alternate') }}");
  EXPECT_EQ(
      out.status().ToString(),
      "INVALID_ARGUMENT: chat template, line 2: the template refuses the messages: roles must alternate");
}

TEST(Jinja, StrftimeNowIsLocalTime) {
  jinja::RenderOptions options;
  options.now = 1700000000;
  std::tm local{};
  localtime_r(&options.now, &local);
  char expected[64];
  std::strftime(expected, sizeof(expected), "%d %b %Y", &local);
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y') }}", {}, options).value(), expected);
  EXPECT_EQ(Render("{{ strftime_now('') }}", {}, options).value(), "");
  EXPECT_THAT(Render("{{ strftime_now('%A' * 100) }}", {}, options).status().ToString(),
              HasSubstr("longer than"));
}

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(JinjaLimits, NestingOfTheSource) {
  const std::string sources[] = {
      "{{ " + Repeat("(", 50000) + "1" + Repeat(")", 50000) + " }}",
      "{{ " + Repeat("[", 50000) + Repeat("]", 50000) + " }}",
      "{{ " + Repeat("{1:", 50000) + "1" + Repeat("}", 50000) + " }}",
      "{{ " + Repeat("-", 100000) + "1 }}",
      "{{ " + Repeat("not ", 100000) + "1 }}",
      "{{ " + Repeat("1 if 1 else ", 50000) + "1 }}",
      "{{ 1" + Repeat("+1", 100000) + " }}",
      "{{ 1" + Repeat(" and 1", 100000) + " }}",
      "{{ a" + Repeat(".a", 100000) + " }}",
      "{{ a" + Repeat("[1]", 100000) + " }}",
      "{{ a" + Repeat("|trim", 100000) + " }}",
      "{{ a" + Repeat(" is string", 50000) + " }}",
      "{{ a is " + Repeat("a is eq(", 50000) + "1" + Repeat(")", 50000) + " }}",
      "{{ a" + Repeat("(", 50000) + Repeat(")", 50000) + " }}",
      Repeat("{% if 1 %}", 50000) + Repeat("{% endif %}", 50000),
      Repeat("{% for a in b %}", 30000) + Repeat("{% endfor %}", 30000),
      Repeat("{% set x %}", 40000) + Repeat("{% endset %}", 40000),
  };
  for (const std::string& source : sources) {
    const absl::StatusOr<std::string> out = Render(source);
    ASSERT_FALSE(out.ok()) << source.substr(0, 60);
    EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument) << source.substr(0, 60);
  }
  EXPECT_THAT(Render(std::string(jinja::kMaxSourceBytes + 1, 'x')).status().ToString(),
              HasSubstr("at most 1048576"));
  EXPECT_THAT(Render("a\xFF").status().ToString(), HasSubstr("not UTF-8 at byte offset 1"));
}

TEST(JinjaLimits, WorkAndMemory) {
  const char* sources[] = {
      "{% for i in range(1000000000000) %}{% endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 9223372036854775807 }}",
      "{{ [1] * 9223372036854775807 }}",
      "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x.replace('a', 'aa') %}{% "
      "endfor %}",
      "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x | replace('', 'aa') %}{% "
      "endfor %}",
      "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor "
      "%}",
      // Shared lists are small, but printing or comparing them is not.
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
      "{{ ns.x | tojson }}",
      "{% set a = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set a.x = [a.x, a.x] %}"
      "{% set a.y = [a.y, a.y] %}{% endfor %}{{ a.x == a.y }}",
      // A search that compares a long pattern at every place.
      "{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 ~ 'b' %}{{ b in a }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
      "{{ (['a' * 1000000] * 30) | join }}",
      "{% for i in 'a' * 10000000 %}{% endfor %}",
      "{{ ('a ' * 5000000).split() }}",
  };
  for (const char* source : sources) {
    const absl::StatusOr<std::string> out = Render(source);
    ASSERT_FALSE(out.ok()) << source << " gives " << out->size() << " bytes";
    EXPECT_THAT(out.status().ToString(),
                ::testing::AnyOf(HasSubstr("more work than its"), HasSubstr("recursion deeper")))
        << source;
  }
}

TEST(JinjaLimits, DeepValues) {
  EXPECT_THAT(
      Render("{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}")
          .status()
          .ToString(),
      HasSubstr("nested deeper than 64"));
  EXPECT_THAT(
      Render(
          "{% set ns = namespace(x=1) %}{% for i in range(1000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}")
          .status()
          .ToString(),
      HasSubstr("nested deeper than 64"));
  // A namespace may hold itself; nothing walks through it.
  EXPECT_EQ(
      Render("{% set a = namespace() %}{% set a.b = [a] %}{% set a.c = a %}{{ a.c.b | length }}").value(),
      "1");
  EXPECT_EQ(
      Render("{% set a = namespace() %}{% for i in [1,2] %}{% set a.l = loop %}{% endfor %}{{ a.l.index }}")
          .value(),
      "2");
}

TEST(JinjaLimits, OrdinaryDepthPasses) {
  EXPECT_EQ(Render("{{ 0" + Repeat("+1", 150) + " }}").value(), "150");
  EXPECT_EQ(Render("{% macro m(n) %}{% if n %}x{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}").value(),
            std::string(40, 'x'));
}

ChatTemplate Chat(const std::string& source) {
  absl::StatusOr<ChatTemplate> chat = ChatTemplate::Parse(source);
  EXPECT_TRUE(chat.ok()) << chat.status();
  return *std::move(chat);
}

TEST(ChatTemplate, SeesMessagesTokensAndThePrompt) {
  const ChatTemplate chat = Chat(
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}:{{ m['content'] }}]{{ eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}>{% endif %}{{ tools is none }}{{ documents is none }}{{ messages | "
      "length }}");
  EXPECT_EQ(chat.Render({{"system", "S"}, {"user", "U"}}, true, "<s>", "</s>").value(),
            "<s>[system:S]</s>[user:U]</s>>TrueTrue2");
  EXPECT_EQ(chat.Render({}, false, "", "").value(), "TrueTrue0");
}

TEST(ChatTemplate, NamesAMessageThatIsNotUtf8) {
  const auto out =
      Chat("{{ messages[0].content }}").Render({{"user", "ok"}, {"user", "ab\xFF"}}, true, "", "");
  EXPECT_THAT(out.status().ToString(), HasSubstr("message 1: its content is not UTF-8 at byte offset 2"));
}

// The budget grows with the messages: a large document passes, through a template that copies it often.
TEST(ChatTemplate, LargeDocuments) {
  const std::string content(size_t{32} << 20, 'x');
  const ChatTemplate chat = Chat(
      "{% for m in messages %}{% set c = m.content | trim %}{% if '</think>' in c %}{{ "
      "c.split('</think>')[-1] }}{% endif %}"
      "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>' + '\\n' }}{% endfor %}");
  const auto out = chat.Render({{"user", content}}, true, "", "");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->size(), content.size() + 28);
}

TEST(ChatTemplate, ManyMessages) {
  std::vector<ChatMessage> messages(20000, {"user", "hi"});
  const ChatTemplate chat =
      Chat("{% for m in messages %}{{ loop.index }}{{ messages[loop.index0 - 1].role }}{% endfor %}");
  ASSERT_TRUE(chat.Render(messages, true, "", "").ok());
}

}  // namespace
}  // namespace snapkv::runtime
