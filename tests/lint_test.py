#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on committed files that are too long, name paths of one machine, or hold leftovers of merges and plans.

Usage: lint_test.py ROOT          checks the tree at ROOT
       lint_test.py --self-test   proves that every rule can fail
"""
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from source_files import committed_files, read_text  # noqa: E402

MAX_LINES = 700
# Longer files, each with its reason.
LONG_FILES = {}

SOURCE = re.compile(r"(\.(h|cc|cu|cuh|py|sh|cmake|proto|md)|(^|/)(CMakeLists\.txt|run))$")
# Documents and golden data are quoted as they are.
DATA = re.compile(r"^(docs/samples/.*\.txt|tests/golden/.*\.(jsonl|json|safetensors)|LICENSE)$")

# Spelled in two parts so that this file passes its own test.
LINE_RULES = [
    (re.compile(r"(?<![\w.$}/-])/" + r"(work|root)/"), "a path of one machine"),
    (re.compile(r"^(<" + r"{7} |>" + r"{7} |=" + r"{7}$)"), "a merge conflict"),
    (re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\(#\d+\))"), "a plan without the number of its issue: TO" + "DO(#123)"),
]


def check(root):
    """Every broken rule below `root`, as "file:line: text"."""
    errors, checked = [], 0
    for path in committed_files(root):
        if DATA.match(path):
            continue
        text = read_text(root, path)
        if text is None:
            errors.append(f"{path}:1: a binary file: only golden data may be binary")
            continue
        checked += 1
        lines = text.splitlines()
        if SOURCE.search(path) and len(lines) > MAX_LINES and path not in LONG_FILES:
            errors.append(f"{path}:{len(lines)}: longer than {MAX_LINES} lines: split it, or give a reason in LONG_FILES")
        for number, line in enumerate(lines, 1):
            errors += [f"{path}:{number}: {what}" for pattern, what in LINE_RULES if pattern.search(line)]
    if checked == 0:
        errors.append(f"no file below {root}: nothing was checked")
    return errors, checked


class SelfTest(unittest.TestCase):
    """Each rule on a file that breaks it."""

    def errors(self, path, text):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "wb") as f:
                f.write(text.encode())
            with open(os.path.join(root, "README.md"), "w", encoding="utf-8") as f:
                f.write("fine\n")
            return check(root)[0]

    def bad(self, path, text, part):
        errors = self.errors(path, text)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(part, errors[0])

    def test_length(self):
        self.assertEqual(self.errors("comm/a.cc", "x\n" * MAX_LINES), [])
        self.bad("comm/a.cc", "x\n" * (MAX_LINES + 1), "comm/a.cc:701: longer than")
        self.assertEqual(self.errors("docs/samples/a.txt", "x\n" * (MAX_LINES + 1)), [])

    def test_machine_paths(self):
        for line in ["see /" + "work/shared", '"/' + "root/.cache", "(/" + "root/x)"]:
            self.bad("docs/a.md", "fine\n" + line + "\n", "docs/a.md:2: a path of one machine")
        for line in ["../" + "root/x", "$HOME/" + "work/x", "home/" + "work/x", "${X}/" + "work/", "/" + "workers/"]:
            self.assertEqual(self.errors("docs/a.md", line), [], line)

    def test_leftovers(self):
        for line in ["<" * 7 + " HEAD", ">" * 7 + " main", "=" * 7]:
            self.bad("comm/a.cc", line + "\n", "merge conflict")
        self.bad("comm/a.cc", "// TO" + "DO: later\n", "number of its issue")
        self.assertEqual(self.errors("comm/a.cc", "// TO" + "DO(#12): later\n"), [])
        self.bad("comm/a.bin", "\0", "binary")

    def test_nothing_checked_is_an_error(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(len(check(root)[0]), 1)

    def test_reasons(self):
        for path, reason in LONG_FILES.items():
            self.assertGreater(len(reason), 20, path)


def main():
    if sys.argv[1:2] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = sys.argv[1]
    errors, checked = check(root)
    for path in LONG_FILES:
        full = os.path.join(root, path)
        if not os.path.isfile(full) or len(read_text(root, path).splitlines()) <= MAX_LINES:
            errors.append(f"{path}: its entry in LONG_FILES is not needed any more: remove it")
    for error in errors:
        print(error)
    print(f"lint: {checked} files, {len(errors)} errors")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
