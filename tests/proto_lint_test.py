#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on names and comments of proto/snapkv/ that break the conventions of docs/service.md's API.

Usage: proto_lint_test.py ROOT          checks ROOT/proto/snapkv
       proto_lint_test.py --self-test   proves that every rule can fail
"""
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from source_files import committed_files, read_text  # noqa: E402

UPPER_CAMEL = re.compile(r"([A-Z][a-z0-9]+)+")
SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
NUMBERS = {"int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64",
           "float", "double"}
OUTPUT_ONLY = "[output only]"

# --- Numbers say what they count. A name decides where it can; else the comment names a unit or a range.
UNITS = re.compile(r"\b(bytes?|[KM]iB|ms|milliseconds?|seconds?|tokens?|rows?|ranks?|documents?|jobs?|workers?|leases?|results?|"
                   r"fraction|probability|grows)\b", re.I)
RANGE = re.compile(r"\d")
# Part of a name -> what name or comment must then say.
NAME_UNITS = [
    (re.compile(r"(^|_)(size|offset|length|bytes)($|_)"), re.compile(r"\b(bytes?|[KM]iB)\b", re.I), "bytes"),
    (re.compile(r"(^|_)(context|tokens)($|_)"), re.compile(r"\btokens?\b", re.I), "tokens"),
    (re.compile(r"(^|_)(time|duration|deadline|age|wait|delay|timeout|ttl|ms|seconds)($|_)"),
     re.compile(r"\b(ms|seconds)\b"), "_ms or _seconds (or a Duration, or a Timestamp)"),
]
# page_size counts entries, by the convention of list calls.
NOT_BYTES = {"page_size"}

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|[\w.]+|[{}()\[\]<>;=,]|\S', re.S)


class Source:
    """Tokens of one file, and the comments beside them."""

    def __init__(self, path, text):
        self.path = path
        self.tokens, self.comments, code_lines = [], {}, set()
        line, last = 1, 0
        for match in TOKEN.finditer(text):
            line += text.count("\n", last, match.start())
            last = match.start()
            token = match.group()
            if token.startswith(("//", "/*")):
                words = token[2:] if token.startswith("//") else token[2:-2]
                self.comments[line] = words.strip()
            else:
                self.tokens.append((token, line))
                code_lines.add(line)
        self.own_line = {n for n in self.comments if n not in code_lines}
        self.at = 0

    def comment(self, first, end, body=False):
        """The comment of what stands on lines first to end: the lines above it, or what follows on its last line."""
        lines, n = [], first - 1
        while n in self.own_line:
            lines.insert(0, self.comments[n])
            n -= 1
        if lines or body or end in self.own_line:
            return " ".join(lines)
        return self.comments.get(end, "")

    def peek(self):
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def line(self):
        return self.tokens[min(self.at, len(self.tokens) - 1)][1] if self.tokens else 1

    def take(self):
        token = self.peek()
        self.at += 1
        return token

    def statement(self):
        """Tokens up to the next ';' (taken, left out) or '{' (left); and the line of the last one."""
        words, depth = [], 0
        while self.peek() not in ("", "}") and not (depth == 0 and self.peek() in (";", "{")):
            depth += {"[": 1, "]": -1}.get(self.peek(), 0)
            words.append(self.take())
        end = self.line()
        if self.peek() == ";":
            self.take()
        return words, end


class Lint:
    """Every rule that the files break, as "file:line: text"."""

    def __init__(self, root):
        self.errors, self.files, self.checked = [], 0, 0
        self.rpcs, self.messages = [], {}  # name -> (path, line)
        for path in committed_files(root):
            if path.startswith("proto/snapkv/") and path.endswith(".proto"):
                self.files += 1
                self.file(Source(path, read_text(root, path) or ""))
        self.check_rpcs()
        if self.files == 0:
            self.errors.append(f"no .proto file below {root}/proto/snapkv: nothing was checked")

    def error(self, source, line, text):
        self.errors.append(f"{source.path}:{line}: {text}")

    def name(self, source, line, kind, name, pattern, what):
        self.checked += 1
        if not pattern.fullmatch(name):
            self.error(source, line, f"{kind} '{name}' is not {what}")

    def commented(self, source, line, kind, name, text):
        """Checks a comment; returns it."""
        if not re.search(r"\w", text.replace(OUTPUT_ONLY, "")):
            self.error(source, line, f"{kind} '{name}': the comment says nothing" if text else
                       f"{kind} '{name}' has no comment of its own")
        elif not text.endswith("."):
            self.error(source, line, f"{kind} '{name}': the comment does not end with a full stop")
        if re.search(r"output[ _-]?only", text.replace(OUTPUT_ONLY, ""), re.I):
            self.error(source, line, f"{kind} '{name}': spell it {OUTPUT_ONLY}")
        elif OUTPUT_ONLY in text and not text.startswith(OUTPUT_ONLY):
            self.error(source, line, f"{kind} '{name}': {OUTPUT_ONLY} stands at the start of the comment")
        return text

    # --- Structure.
    def file(self, source):
        folder, package = os.path.dirname(source.path)[len("proto/"):], None
        base = os.path.basename(source.path)[:-len(".proto")]
        if not SNAKE.fullmatch(base):
            self.error(source, 1, f"the file name '{base}' is not snake_case")
        while source.peek():
            line, kind = source.line(), source.peek()
            if kind in ("message", "enum", "service"):
                self.block(source, "")
                continue
            words, _ = source.statement()
            if kind == "package":
                package = words[1]
            elif kind not in ("syntax", "import", "option"):
                self.error(source, line, f"'{' '.join(words) or source.take()}' is not understood by this lint")
        if package != folder.replace("/", "."):
            self.error(source, 1, f"package '{package}' does not match the folder '{folder}'")

    def block(self, source, outer):
        line, kind, name = source.line(), source.take(), source.take()
        comment = source.comment(line, line, body=True)
        self.name(source, line, kind, name, UPPER_CAMEL, "UpperCamel")
        if kind == "message" and not outer:
            self.messages[name] = (source, line)
        if kind != "message" or not name.endswith(("Request", "Response")):
            self.commented(source, line, kind, name, comment)
        source.take()  # {
        values = []
        while source.peek() not in ("", "}"):
            if kind == "service":
                self.rpc(source, name)
            elif kind == "enum":
                self.value(source, name, outer, values)
            else:
                self.member(source, name)
        source.take()  # }
        if kind == "enum" and not values:
            self.error(source, line, f"enum '{name}' has no values")

    def member(self, source, message):
        if source.peek() in ("message", "enum"):
            return self.block(source, message)
        line = source.line()
        if source.peek() == "oneof":
            source.take()
            name = source.take()
            self.name(source, line, "oneof", name, SNAKE, "snake_case")
            source.take()  # {
            while source.peek() not in ("", "}"):
                self.member(source, message)
            source.take()  # }
            return None
        words, end = source.statement()
        if words[:1] in (["reserved"], ["option"]):
            return None
        if "=" not in words or words.index("=") < 2:
            return self.error(source, line, f"'{' '.join(words) or source.take()}' is not understood by this lint")
        at = words.index("=")
        name, kind = words[at - 1], words[at - 2]
        self.name(source, line, "field", name, SNAKE, "snake_case")
        comment = self.commented(source, line, "field", f"{message}.{name}", source.comment(line, end))
        if kind in NUMBERS:
            self.unit(source, line, f"{message}.{name}", name, comment)
        return None

    def unit(self, source, line, full, name, comment):
        text = name.replace("_", " ") + " " + comment
        for pattern, needed, what in NAME_UNITS:
            if pattern.search(name) and name not in NOT_BYTES:
                if not needed.search(text):
                    self.error(source, line, f"number '{full}': neither name nor comment says {what}")
                return
        if not UNITS.search(text) and not RANGE.search(comment):
            self.error(source, line, f"number '{full}': neither name nor comment gives a unit or a range")

    def value(self, source, enum, outer, values):
        line = source.line()
        words, end = source.statement()
        if words[:1] in (["reserved"], ["option"]):
            return
        name = words[0]
        self.name(source, line, "enum value", name, UPPER_SNAKE, "UPPER_SNAKE")
        self.commented(source, line, "enum value", f"{enum}.{name}", source.comment(line, end))
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum).upper() + "_"
        if not values and (name != prefix + "UNSPECIFIED" or words[1:3] != ["=", "0"]):
            self.error(source, line, f"the first value of enum '{enum}' is not {prefix}UNSPECIFIED = 0")
        elif not outer and not name.startswith(prefix):
            self.error(source, line, f"value '{name}' of the top-level enum '{enum}' does not begin with {prefix}")
        values.append(name)

    def rpc(self, source, service):
        line = source.line()
        words, end = source.statement()
        comment = source.comment(line, end)
        if source.peek() == "{":
            while source.peek() not in ("", "}"):
                source.take()
            source.take()
        types = [w for w in words[2:] if w not in ("(", ")", "returns", "stream")]
        if words[:1] == ["option"]:
            return
        if words[:1] != ["rpc"] or len(types) != 2:
            self.error(source, line, f"'{' '.join(words) or source.take()}' is not understood by this lint")
            return
        self.name(source, line, "rpc", words[1], UPPER_CAMEL, "UpperCamel")
        self.commented(source, line, "rpc", f"{service}.{words[1]}", comment)
        self.rpcs.append((source, line, words[1], types[0], types[1]))

    def check_rpcs(self):
        used = set()
        for source, line, name, request, response in self.rpcs:
            used |= {request, response}
            if request != name + "Request":
                self.error(source, line, f"rpc '{name}' takes '{request}', not {name}Request")
            if response.endswith("Request"):
                self.error(source, line, f"rpc '{name}' returns the request '{response}'")
            elif response.endswith("Response") and response != name + "Response":
                self.error(source, line, f"rpc '{name}' returns '{response}', not {name}Response or a resource")
            elif "." not in response and response not in self.messages:
                self.error(source, line, f"rpc '{name}' returns '{response}', which no message of ours declares")
            elif "." in response and response != "google.protobuf.Empty":
                self.error(source, line, f"rpc '{name}' returns '{response}', neither ours nor google.protobuf.Empty")
        for name, (source, line) in self.messages.items():
            if name.endswith(("Request", "Response")) and name not in used:
                self.error(source, line, f"message '{name}' belongs to no rpc")


GOOD = """// SPDX-License-Identifier: Apache-2.0
// Things.
syntax = "proto3";

package snapkv.v1;

import "google/protobuf/empty.proto";

// Keeps things.
service Things {
  // Makes a thing.
  rpc CreateThing(CreateThingRequest) returns (Thing);
  rpc ListThings(ListThingsRequest) returns (ListThingsResponse);  // All of them.
  // Removes it.
  rpc DeleteThing(DeleteThingRequest) returns (google.protobuf.Empty);
  // Pieces in, pieces out.
  rpc CopyThing(stream CopyThingRequest) returns (stream Thing);
}

// A thing.
message Thing {
  // What it is.
  enum Kind {
    // Not set.
    KIND_UNSPECIFIED = 0;
    GOOD = 1;  // It is good.
  }
  // [output only] things/{thing}.
  string name = 1;
  // Its kind.
  Kind kind = 2;
  // Of its content.
  int64 size_bytes = 3;
  // Yours, by name.
  map<string, string> labels = 4;
  reserved 5;
  // One of two.
  oneof part {
    // Left.
    string left_part = 6 [deprecated = true];
    // 1 to 9.
    optional int32 grade = 7;
  }
}

// How it is.
enum ThingState {
  // Not set.
  THING_STATE_UNSPECIFIED = 0;
  // It is new.
  THING_STATE_NEW = 1;
}

message CreateThingRequest {
  // The thing.
  Thing thing = 1;
}

message ListThingsRequest {
  // 0: 50.
  int32 page_size = 1;
}

message ListThingsResponse {
  // All.
  repeated Thing things = 1;
}

message DeleteThingRequest {
  // things/{thing}.
  string name = 1;
}

message CopyThingRequest {
  // A piece.
  bytes data = 1;
}
"""


class SelfTest(unittest.TestCase):
    """Each rule on a file that breaks it and nothing else."""

    def errors(self, text, path="proto/snapkv/v1/things.proto"):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
            return Lint(root).errors

    def bad(self, old, new, *parts, count=1):
        self.assertEqual(GOOD.count(old), 1, old)
        errors = self.errors(GOOD.replace(old, new))
        self.assertEqual(len(errors), count, errors)
        for part in parts:
            self.assertIn(part, errors[0])

    def test_good(self):
        self.assertEqual(self.errors(GOOD), [])

    def test_nothing_checked(self):
        self.assertIn("nothing was checked", self.errors(GOOD, "proto/google/things.proto")[0])

    def test_package_and_file(self):
        self.bad("package snapkv.v1;", "package snapkv.v2;", "package 'snapkv.v2'")
        self.bad("package snapkv.v1;\n", "", "package 'None'")
        self.assertIn("snake_case", self.errors(GOOD, "proto/snapkv/v1/Things.proto")[0])

    def test_names(self):
        self.bad("service Things {", "service things {", "service 'things' is not UpperCamel")
        self.bad("  rpc DeleteThing(DeleteThingRequest", "  rpc delete_thing(DeleteThingRequest", "'delete_thing'", count=2)
        self.bad("message Thing {", "message Thing {\n  // A.\n  message other_one {\n  }", "'other_one'")
        self.bad("left_part", "leftPart", "field 'leftPart' is not snake_case")
        self.bad("oneof part", "oneof Part", "oneof 'Part'")
        self.bad("enum Kind {", "enum kind {", "enum 'kind' is not UpperCamel")
        self.bad("    GOOD = 1", "    good = 1", "'good' is not UPPER_SNAKE")
        self.bad("THING_STATE_NEW", "NEW", "does not begin with THING_STATE_")

    def test_zero_values(self):
        self.bad("KIND_UNSPECIFIED = 0", "KIND_NONE = 0", "not KIND_UNSPECIFIED = 0")
        self.bad("    // Not set.\n    KIND_UNSPECIFIED = 0;\n", "", "not KIND_UNSPECIFIED = 0")
        self.bad("THING_STATE_UNSPECIFIED = 0", "UNSPECIFIED = 0", "not THING_STATE_UNSPECIFIED = 0")

    def test_requests_and_responses(self):
        self.bad("(CreateThingRequest) returns", "(DeleteThingRequest) returns", "takes 'DeleteThingRequest'", count=2)
        self.bad("(ListThingsRequest) returns (ListThingsResponse)", "(ListThingsRequest) returns (OtherResponse)",
                 "returns 'OtherResponse'", count=2)
        self.bad("returns (google.protobuf.Empty)", "returns (google.protobuf.Any)", "google.protobuf.Any")
        self.bad("returns (google.protobuf.Empty)", "returns (Nothing)", "no message of ours declares")
        self.bad("returns (stream Thing)", "returns (stream CopyThingRequest)", "returns the request")
        self.bad("// How it is.", "message OldRequest {\n}\n\n// How it is.", "'OldRequest' belongs to no rpc")

    def test_comments(self):
        self.bad("// Keeps things.\n", "\n", "service 'Things' has no comment")
        self.bad("  // Makes a thing.\n", "", "rpc 'Things.CreateThing' has no comment")
        self.bad("  // All of them.", "", "rpc 'Things.ListThings' has no comment")
        self.bad("// A thing.\n", "// A thing.\n\n", "message 'Thing' has no comment")
        self.bad("// How it is.\n", "", "enum 'ThingState' has no comment")
        self.bad("    // Not set.\n    KIND", "    KIND", "enum value 'Kind.KIND_UNSPECIFIED' has no comment")
        self.bad("  // Its kind.\n", "", "field 'Thing.kind' has no comment")
        self.bad("    // Left.\n", "", "field 'Thing.left_part' has no comment")
        self.bad("  // Its kind.\n", "  // Its kind\n", "full stop")
        self.bad("  // Its kind.\n", "  // .\n", "says nothing")

    def test_neighbours_do_not_share_a_comment(self):
        self.bad("  // The thing.\n  Thing thing = 1;\n", "  // The thing.\n  Thing thing = 1;\n  Thing other = 2;\n",
                 "'CreateThingRequest.other' has no comment")
        self.bad("  // The thing.\n  Thing thing = 1;\n", "  Thing thing = 1;  // The thing.\n  Thing other = 2;\n",
                 "'CreateThingRequest.other' has no comment")
        self.bad("  // The thing.\n  Thing thing = 1;\n", "  Thing thing = 1;\n  // The thing.\n  Thing other = 2;\n",
                 "'CreateThingRequest.thing' has no comment")

    def test_output_only(self):
        for spelling in ("Output only.", "[Output only]", "OUTPUT_ONLY.", "(output only)"):
            self.bad("[output only] things", spelling + " things", "spell it [output only]")
        self.bad("[output only] things/{thing}.", "things/{thing}. [output only].", "at the start")
        self.bad("[output only] things/{thing}.", "[output only]", "says nothing")

    def test_units(self):
        field = "  // Of its content.\n  int64 size_bytes = 3;\n"
        good = ["// Bytes.\n int64 offset = 3;", "// Of it, in bytes.\n int32 size = 3;", "// At most 3 MiB.\n int64 length = 3;",
                "// Of both.\n int64 max_context_tokens = 3;", "// Tokens.\n int64 max_context = 3;",
                "// Of it.\n double decode_ms = 3;", "// The wait.\n google.protobuf.Duration wait = 3;",
                "// 1 to 9.\n int32 grade = 3;", "// Fraction that is done.\n double done = 3;"]
        for text in good:
            self.assertEqual(self.errors(GOOD.replace(field, text + "\n")), [], text)
        self.bad(field, "// Where.\n int64 offset = 3;\n", "says bytes")
        self.bad(field, "// Both.\n int64 max_context = 3;\n", "says tokens")
        self.bad(field, "// How long.\n int64 wait = 3;\n", "says _ms or _seconds")
        self.bad(field, "// How good.\n repeated double quality = 3;\n", "a unit or a range")
        self.bad(field, "// How good.\n optional uint32 quality = 3;\n", "a unit or a range")

    def test_what_it_does_not_know(self):
        self.bad("  reserved 5;\n", "  reserved 5;\n  group;\n", "not understood")
        self.bad("// How it is.\n", "extend Thing;\n// How it is.\n", "not understood")


def main():
    if sys.argv[1:2] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lint = Lint(sys.argv[1])
    for error in lint.errors:
        print(error)
    print(f"proto_lint: {lint.files} files, {lint.checked} names, {len(lint.errors)} errors")
    sys.exit(1 if lint.errors else 0)


if __name__ == "__main__":
    main()
