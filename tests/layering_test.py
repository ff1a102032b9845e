#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an #include or a CMake DEPS entry that breaks the order of the layers, or a source without its head.

Usage: layering_test.py ROOT          checks the tree at ROOT
       layering_test.py --self-test   proves on small trees that every rule can fail
"""
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from source_files import committed_files, read_text  # noqa: E402

SOURCE = re.compile(r"\.(h|cc|cu|cuh)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.M)
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.S)

# --- The layers. A unit is a folder with everything below it (the longest match counts); it may include itself, what is
# listed here, and nothing else of ours. kernels <- comm <- runtime <- launch; inside kernels base <- {ref, cpu, emu, cuda}
# <- op; inside runtime plan, text, cache <- model <- engine <- service.
KERNELS = {"kernels/base", "kernels/op"}  # what the layers above may see of kernels
LEAVES = KERNELS | {"comm"}
MODEL = LEAVES | {"runtime/plan", "runtime/text", "runtime/cache"}
ENGINE = MODEL | {"runtime/model"}
SERVICE = ENGINE | {"runtime/engine", "runtime/hash", "proto"}
MAY_INCLUDE = {
    "kernels/base": set(),
    "kernels/ref": {"kernels/base"},
    "kernels/cpu": {"kernels/base"},
    "kernels/emu": {"kernels/base"},
    "kernels/cuda": {"kernels/base", "kernels/emu"},
    "kernels/op": {"kernels/base", "kernels/ref", "kernels/cpu", "kernels/cuda"},
    "kernels/bench": {"kernels/base", "kernels/ref", "kernels/cpu", "kernels/cuda", "kernels/op"},
    "comm": KERNELS,
    "comm/bench": KERNELS | {"comm"},
    "runtime/hash": {"kernels/base"},
    "runtime/plan": LEAVES,
    "runtime/text": LEAVES,
    "runtime/cache": LEAVES,
    "runtime/model": MODEL,
    "runtime/engine": ENGINE,
    "runtime/service": SERVICE,
    "proto": set(),
    "launch": SERVICE | {"runtime/service"},
    "tests": None,  # everything
}
# Plain structs that the kernels share with the op contract.
SHARED_HEADERS = {"kernels/op/params.h"}
SHARED_WITH = {"kernels/ref", "kernels/cpu", "kernels/cuda"}
# (file, header) pairs that break the table, each with its reason.
EXCEPTIONS = {
    ("kernels/cpu/elementwise.cc", "kernels/ref/ref.h"):
        "conversions off the hot path run the reference on slices, in parallel",
}

# --- Third-party headers: prefix -> where they may be included (path prefixes), empty for anywhere.
THIRD_PARTY = {
    "absl/": [],
    "gtest/": ["tests/"],
    "gmock/": ["tests/"],
    "benchmark/": ["kernels/bench/", "comm/bench/"],
    "nlohmann/": ["runtime/text/", "runtime/model/", "runtime/service/event_log.cc", "launch/", "tests/"],
    "CLI/": ["launch/", "tests/service/load_generator.cc"],
    "openssl/": ["runtime/hash/sha256.cc"],
    "hwy/": ["kernels/cpu/", "kernels/bench/"],
    "oneapi/dnnl/": ["kernels/cpu/gemm_onednn.cc"],
    "dnnl": ["kernels/cpu/gemm_onednn.cc"],
    "mpi.h": ["comm/mpi_", "comm/bootstrap.", "tests/comm/"],
    "nccl.h": ["comm/nccl_", "tests/comm/"],
    "cuda_emu/": ["kernels/cuda/", "kernels/emu/", "tests/kernels/"],
    "cuda": ["kernels/cuda/", "comm/nccl_", "tests/"],
    "cublas": ["kernels/cuda/"],
    "omp.h": ["kernels/", "runtime/engine/", "launch/", "tests/"],
    "pcre2.h": ["runtime/text/"],
    "utf8proc.h": ["runtime/text/"],
    "sqlite3.h": ["runtime/service/", "tests/service/"],
    "grpc": ["runtime/service/", "launch/", "tests/service/", "tests/launch/", "tests/e2e/", "tests/support/fake_workers"],
    "google/protobuf/": ["runtime/service/", "launch/", "tests/service/", "tests/launch/", "tests/e2e/", "tests/support/fake_workers"],
    "google/rpc/": ["runtime/service/", "tests/service/"],
    "prometheus/": ["runtime/service/"],
    "snapkv/v1/": ["runtime/service/", "launch/", "tests/service/", "tests/launch/", "tests/e2e/", "tests/support/fake_workers"],
    "immintrin.h": ["kernels/cpu/", "kernels/bench/", "tests/kernels/"],
    "cpuid.h": ["kernels/"],
}
STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits clocale
cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib
cstring ctime cwchar cwctype deque exception filesystem forward_list fstream functional future initializer_list iomanip ios
iosfwd iostream istream iterator latch limits list locale map memory memory_resource mutex new numbers numeric optional
ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex source_location span sstream stack
stdexcept stop_token streambuf string string_view system_error thread tuple type_traits typeindex typeinfo unordered_map
unordered_set utility valarray variant vector version
""".split())
SYSTEM = set("""
arpa/inet.h dirent.h dlfcn.h endian.h errno.h fcntl.h fnmatch.h glob.h ifaddrs.h link.h malloc.h net/if.h netdb.h netinet/in.h netinet/tcp.h
poll.h pthread.h pwd.h sched.h setjmp.h signal.h spawn.h stdint.h stdlib.h string.h strings.h sys/auxv.h sys/epoll.h
sys/eventfd.h sys/file.h sys/ioctl.h sys/mman.h sys/prctl.h sys/resource.h sys/sendfile.h sys/signalfd.h sys/socket.h sys/stat.h
sys/statvfs.h sys/syscall.h sys/sysmacros.h sys/sysinfo.h sys/time.h sys/timerfd.h sys/types.h sys/uio.h sys/un.h sys/utsname.h sys/wait.h
syslog.h termios.h time.h ucontext.h unistd.h linux/futex.h linux/mempolicy.h sanitizer/asan_interface.h
sanitizer/lsan_interface.h sanitizer/tsan_interface.h
""".split())

# --- Kernels take views and scalars: what these files reach, directly or through our headers, is free of Abseil, log and
# protocol buffers, but for the one file that talks to oneDNN.
BARE_FOLDERS = ("kernels/ref/", "kernels/cpu/")
BARE_SUFFIXES = (".cu", ".cuh")
BARE_EXEMPT = {"kernels/cpu/gemm_onednn.cc"}
BARE_FORBIDDEN = ("absl/", "google/protobuf/", "snapkv/v1/", "kernels/base/status.h", "kernels/base/log.h")


def unit_of(path):
    """The longest entry of MAY_INCLUDE that contains `path`, or None."""
    units = [u for u in MAY_INCLUDE if path.startswith(u + "/")]
    return max(units, key=len) if units else None


def third_party(header):
    """The longest prefix of THIRD_PARTY that `header` starts with, or None. Prefixes without / or . are stems."""
    matches = [p for p in THIRD_PARTY if header.startswith(p)]
    return max(matches, key=len) if matches else None


class Tree:
    """The sources of one tree and every rule broken in it."""

    def __init__(self, root):
        self.root = root
        self.errors = []
        self.files = [f for f in committed_files(root)]
        self.sources = [f for f in self.files if SOURCE.search(f)]
        self.includes = {}  # source -> list of (line, header)
        for path in self.sources:
            self.includes[path] = self.read_includes(path)

    def error(self, path, line, text):
        self.errors.append(f"{path}:{line}: {text}")

    def read_includes(self, path):
        text = read_text(self.root, path) or ""
        text = BLOCK_COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)
        return [(text.count("\n", 0, m.start(1) if m.group(1) else m.start(2)) + 1, m.group(1) or m.group(2))
                for m in INCLUDE.finditer(text)]

    def check(self):
        for path in self.sources:
            self.check_head(path)
            for line, header in self.includes[path]:
                self.check_include(path, line, header)
            self.check_bare(path)
        for path in self.files:
            if path.endswith((".py", ".sh", ".cmake", ".proto")) or os.path.basename(path) == "CMakeLists.txt":
                self.check_head(path)
        self.check_cmake()
        if not self.sources:
            self.errors.append(f"no source file below {self.root}: nothing was checked")
        return self.errors

    def check_head(self, path):
        lines = (read_text(self.root, path) or "").splitlines()
        skip = 1 if lines and lines[0].startswith("#!") else 0
        mark = "//" if SOURCE.search(path) or path.endswith(".proto") else "#"
        head = lines[skip:skip + 2] + ["", ""]
        if head[0] != f"{mark} SPDX-License-Identifier: Apache-2.0":
            self.error(path, skip + 1, f"the first line is not '{mark} SPDX-License-Identifier: Apache-2.0'")
        elif SOURCE.search(path) and not re.match(r"// \S", head[1]):
            self.error(path, skip + 2, "the second line is not a sentence that says what the file is")
        if path.endswith((".h", ".cuh")) and not path.endswith("-inl.h") and "#pragma once" not in lines:
            self.error(path, 1, "the header has no '#pragma once'")

    def check_include(self, path, line, header):
        unit = unit_of(path)
        if unit is None:
            return self.error(path, line, "this folder is not in the table of layers of tests/layering_test.py")
        if header in self.includes or os.path.isfile(os.path.join(self.root, header)):
            return self.check_edge(path, line, unit, header)
        prefix = third_party(header)
        if prefix is not None:
            places = THIRD_PARTY[prefix]
            if places and not path.startswith(tuple(places)):
                self.error(path, line, f"'{header}' may only be included in {', '.join(places)}")
        elif header not in STANDARD and header not in SYSTEM:
            self.error(path, line, f"'{header}' is neither a file of ours (paths start at the root) nor a known header")

    def check_edge(self, path, line, unit, header):
        target = unit_of(header)
        if target is None:
            return self.error(path, line, f"'{header}' lies in no layer")
        allowed = MAY_INCLUDE[unit]
        shared = header in SHARED_HEADERS and unit in SHARED_WITH
        if allowed is None or target == unit or target in allowed or shared or (path, header) in EXCEPTIONS:
            return None
        return self.error(path, line, f"{unit} may not include {target} ('{header}')")

    def check_bare(self, path):
        """Reports the chain by which a bare kernel file reaches something forbidden."""
        if path in BARE_EXEMPT or not (path.startswith(BARE_FOLDERS) or path.endswith(BARE_SUFFIXES)):
            return
        pending, seen = [(path, [])], {path}
        while pending:
            source, chain = pending.pop()
            for line, header in self.includes[source]:
                start = chain[0] if chain else (line, header)
                if header.startswith(BARE_FORBIDDEN):
                    via = " -> ".join([h for _, h in chain] + [header])
                    self.error(path, start[0], f"kernels take no Status, log or proto: {via}")
                elif header in self.includes and header not in seen:
                    seen.add(header)
                    pending.append((header, chain + [(line, header)]))

    def check_cmake(self):
        """DEPS between our own targets follow the same table."""
        owner, uses = {}, []
        for path in self.files:
            if os.path.basename(path) != "CMakeLists.txt":
                continue
            text = re.sub(r"#.*", "", read_text(self.root, path) or "")
            for kind, name, body in re.findall(r"\b(snapkv_library|snapkv_test)\(\s*(\w+)([^)]*)\)", text):
                if kind == "snapkv_library":
                    if name in owner:
                        self.error(path, 1, f"the library '{name}' is declared twice")
                    owner[name] = path
                for dep in re.findall(r"\bsnapkv::(\w+)", body):
                    uses.append((path, name, dep))
        for path, name, dep in uses:
            unit, target = unit_of(path), unit_of(owner.get(dep, ""))
            if dep not in owner:
                self.error(path, 1, f"'{name}' depends on snapkv::{dep}, which no snapkv_library declares")
            elif unit is None or target is None:
                self.error(path, 1, f"'{name}' -> snapkv::{dep}: a folder outside the layers")
            elif not (MAY_INCLUDE[unit] is None or target == unit or target in MAY_INCLUDE[unit] or
                      any(p.startswith(os.path.dirname(path) + "/") and unit_of(h) == target for p, h in EXCEPTIONS)):
                self.error(path, 1, f"'{name}' in {unit} may not depend on snapkv::{dep} in {target}")


HEAD = "// SPDX-License-Identifier: Apache-2.0\n// A file.\n"
ONCE = HEAD + "#pragma once\n"


class SelfTest(unittest.TestCase):
    """Each rule on a tree that breaks it and nothing else."""

    def errors(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            return Tree(root).check()

    def good(self, files):
        self.assertEqual(self.errors(files), [])

    def bad(self, files, *parts):
        errors = self.errors(files)
        self.assertEqual(len(errors), 1, errors)
        for part in parts:
            self.assertIn(part, errors[0])

    def include(self, path, header, header_text=ONCE):
        """A tree in which `path` includes our `header`."""
        return {path: HEAD + ("#pragma once\n" if path.endswith(".h") else "") + f'#include "{header}"\n', header: header_text}

    def test_edges(self):
        chain = [["kernels/base/a.h"], ["kernels/ref/a.h", "kernels/cpu/a.h"], ["kernels/op/a.h"], ["comm/a.h"],
                 ["runtime/plan/a.h", "runtime/text/a.h", "runtime/cache/a.h"], ["runtime/model/a.h"],
                 ["runtime/engine/a.h"], ["runtime/service/a.h"], ["launch/a.h"]]
        hidden = {"kernels/ref", "kernels/cpu"}  # seen by kernels/op only
        for i, sources in enumerate(chain):
            for source in sources:
                for j, targets in enumerate(chain):
                    for target in targets:
                        if source == target:
                            continue
                        tree = self.include(source.replace("a.h", "b.cc"), target)
                        private = os.path.dirname(target) in hidden and not source.startswith("kernels/op")
                        with self.subTest(source=source, target=target):
                            if j < i and not private:
                                self.good(tree)
                            else:
                                self.bad(tree, "b.cc:3:", "may not include", target)

    def test_only_tests_include_tests(self):
        self.good(self.include("tests/runtime/b.cc", "tests/support/a.h"))
        self.good(self.include("tests/kernels/b.cc", "kernels/cpu/a.h"))
        self.bad(self.include("runtime/engine/b.cc", "tests/support/a.h"), "may not include tests")

    def test_shared_params_header(self):
        self.good(self.include("kernels/ref/b.cc", "kernels/op/params.h"))
        self.bad(self.include("kernels/ref/b.cc", "kernels/op/validate.h"), "kernels/ref may not include kernels/op")
        self.bad(self.include("kernels/base/b.cc", "kernels/op/params.h"), "kernels/base may not include")

    def test_kernels_reach_no_status(self):
        status = {"kernels/base/status.h": ONCE + '#include "absl/status/status.h"\n',
                  "kernels/base/mid.h": ONCE + '#include "kernels/base/status.h"\n'}
        direct = HEAD + '#include "absl/status/status.h"\n'
        for path in ("kernels/ref/b.cc", "kernels/cpu/b.cc", "kernels/cuda/b.cu"):
            with self.subTest(path=path):
                self.bad({path: direct}, path + ":3:", "absl/status/status.h")
                self.bad({**status, path: HEAD + '\n#include "kernels/base/mid.h"\n'}, path + ":4:",
                         "kernels/base/mid.h -> kernels/base/status.h")
        self.bad(self.include("kernels/cpu/b.cc", "kernels/base/log.h"), "kernels/base/log.h")
        self.good({"kernels/cpu/gemm_onednn.cc": direct})
        self.good({"kernels/op/b.cc": direct})

    def test_third_party_places(self):
        cases = [("mpi.h", "comm/mpi_comm.cc", "comm/thread_comm.cc"), ("mpi.h", "comm/bootstrap.cc", "runtime/engine/a.cc"),
                 ("hwy/highway.h", "kernels/cpu/a.cc", "kernels/ref/a.cc"),
                 ("oneapi/dnnl/dnnl.hpp", "kernels/cpu/gemm_onednn.cc", "kernels/cpu/gemm.cc"),
                 ("CLI/CLI.hpp", "launch/a.cc", "runtime/engine/a.cc"),
                 ("nlohmann/json.hpp", "runtime/text/a.cc", "runtime/engine/a.cc"),
                 ("gtest/gtest.h", "tests/a.cc", "runtime/text/a.cc"),
                 ("grpcpp/grpcpp.h", "runtime/service/a.cc", "runtime/engine/a.cc"),
                 ("snapkv/v1/jobs.pb.h", "launch/a.cc", "comm/a.cc"),
                 ("sqlite3.h", "runtime/service/a.cc", "launch/a.cc"),
                 ("pcre2.h", "runtime/text/a.cc", "runtime/model/a.cc")]
        for header, yes, no in cases:
            for form in (f"<{header}>", f'"{header}"'):
                with self.subTest(header=header, form=form):
                    self.good({yes: HEAD + f"#include {form}\n"})
                    self.bad({no: HEAD + f"#  include {form}\n"}, no + ":3:", "may only be included in")

    def test_unknown_headers(self):
        self.good({"comm/a.cc": HEAD + "#include <vector>\n#include <sys/stat.h>\n#include <absl/time/time.h>\n"})
        self.bad({"comm/a.cc": HEAD + '#include "thread_comm.h"\n', "comm/thread_comm.h": ONCE}, "paths start at the root")
        self.bad({"comm/a.cc": HEAD + "#include <boost/any.hpp>\n"}, "boost/any.hpp")
        self.bad({"extras/a.cc": HEAD + "#include <vector>\n"}, "not in the table of layers")

    def test_comments_do_not_count(self):
        self.good({"comm/a.cc": HEAD + '/*\n#include "launch/a.h"\n*/\n// #include "launch/a.h"\n', "launch/a.h": ONCE})

    def test_heads(self):
        self.bad({"comm/a.cc": "// A file.\n// SPDX-License-Identifier: Apache-2.0\n"}, "comm/a.cc:1:", "SPDX")
        self.bad({"comm/a.cc": "// SPDX-License-Identifier: Apache-2.0\n#include <vector>\n"}, "comm/a.cc:2:", "sentence")
        self.bad({"comm/a.h": HEAD}, "#pragma once")
        self.good({"kernels/cpu/a-inl.h": HEAD})
        source = {"comm/a.cc": HEAD}
        self.good({**source, "tests/a.py": "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n"})
        self.bad({**source, "tests/a.sh": "#!/bin/sh\nset -e\n"}, "tests/a.sh:2:")
        self.bad({**source, "comm/CMakeLists.txt": "#SPDX - License\n"}, "comm/CMakeLists.txt:1:")

    def test_cmake(self):
        spdx = "# SPDX-License-Identifier: Apache-2.0\n"
        tree = {"comm/a.cc": HEAD, "comm/CMakeLists.txt": spdx + "snapkv_library(comm\n  SRCS a.cc\n  DEPS snapkv::base)\n",
                "kernels/base/CMakeLists.txt": spdx + "snapkv_library(base)\n"}
        self.good(tree)
        self.bad({**tree, "kernels/base/CMakeLists.txt": spdx + "snapkv_library(base DEPS snapkv::comm)\n"},
                 "'base' in kernels/base may not depend on snapkv::comm in comm")
        self.bad({**tree, "launch/CMakeLists.txt": spdx + "snapkv_library(main DEPS snapkv::nobody)\n"}, "nobody")
        self.bad({**tree, "comm/CMakeLists.txt": tree["comm/CMakeLists.txt"] + "snapkv_library(comm)\n"}, "declared twice")

    def test_nothing_checked_is_an_error(self):
        self.bad({}, "nothing was checked")

    def test_exceptions_name_existing_units_and_reasons(self):
        for (path, header), reason in EXCEPTIONS.items():
            self.assertIsNotNone(unit_of(path))
            self.assertIsNotNone(unit_of(header))
            self.assertGreater(len(reason), 20)


def main():
    if sys.argv[1:2] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tree = Tree(sys.argv[1])
    errors = tree.check()
    for path, header in EXCEPTIONS:
        if header not in [h for _, h in tree.includes.get(path, [])]:
            errors.append(f"{path}: the exception for '{header}' is not needed any more: remove it")
    for error in errors:
        print(error)
    print(f"layering: {len(tree.sources)} sources, {sum(map(len, tree.includes.values()))} includes, {len(errors)} errors")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
