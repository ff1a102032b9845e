# SPDX-License-Identifier: Apache-2.0
"""What the tests of the job service share: the programs, Python's own gRPC client, and stubs made from proto/."""
import fcntl
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Set by CMake.
SOURCE = os.environ["SNAPKV_SOURCE"]
BUILD = os.environ["SNAPKV_BUILD"]
MPIRUN = os.environ.get("SNAPKV_MPIRUN", "mpirun").split()
SERVER = os.path.join(BUILD, "launch", "snapkv-server")
CLIENT = os.path.join(BUILD, "launch", "snapkv")
PREFILL = os.path.join(BUILD, "launch", "snapkv-prefill")
WRITE_MODEL = os.path.join(BUILD, "tests", "e2e", "service", "write_tiny_model")
PACKAGES = ["grpcio==1.60.0", "grpcio-tools==1.60.0", "grpcio-health-checking==1.60.0", "grpcio-status==1.60.0"]
SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def install_python_client():
    """Installs grpcio from PyPI into the build folder, once, and makes the stubs; returns nothing, or skips the test."""
    folder = os.path.join(BUILD, "tests", "e2e", "service", "python")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packages, stubs = os.path.join(folder, "packages"), os.path.join(folder, "stubs")
        if not os.path.exists(os.path.join(packages, ".complete")):
            shutil.rmtree(packages, ignore_errors=True)
            pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                                  "--root-user-action=ignore", "--target", packages] + PACKAGES, capture_output=True, text=True)
            if pip.returncode != 0:
                print("skipped: pip cannot install grpcio: " + pip.stderr[-500:])
                sys.exit(SKIPPED)
            open(os.path.join(packages, ".complete"), "w").close()
        shutil.rmtree(stubs, ignore_errors=True)
        os.makedirs(stubs)
        protos = [os.path.relpath(p, os.path.join(SOURCE, "proto"))
                  for p in glob.glob(os.path.join(SOURCE, "proto", "snapkv", "v1", "*.proto"))]
        environment = dict(os.environ, PYTHONPATH=packages)
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I" + os.path.join(SOURCE, "proto"),
                        "--python_out=" + stubs, "--grpc_python_out=" + stubs] + protos, check=True, env=environment)
    sys.path[:0] = [packages, stubs]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Folder:
    """A temporary folder, kept when the test fails."""

    def __init__(self, name):
        self.path = tempfile.mkdtemp(prefix="snapkv-" + name + "-")

    def file(self, name, content=None):
        path = os.path.join(self.path, name)
        if content is not None:
            with open(path, "wb") as out:
                out.write(content if isinstance(content, bytes) else content.encode())
        return path

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Process:
    """A program in a process group of its own, its stderr in a file."""

    def __init__(self, argv, log, **options):
        self.argv, self.log, self.options = argv, log, options
        self.process = None
        self.start()

    def start(self):
        out = open(self.log, "ab")
        self.process = subprocess.Popen(self.argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                                        **self.options)

    def kill_all(self):
        """kill -9 of everything it has started."""
        pids = [self.process.pid] + descendants(self.process.pid)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def terminate(self, timeout=60):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def alive(self):
        return self.process.poll() is None

    def output(self):
        with open(self.log, errors="replace") as text:
            return text.read()


def descendants(pid):
    """Processes that `pid` has started, and theirs."""
    children = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry) as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


class Server(Process):
    def __init__(self, folder, flags=(), port=None, state="state", prefix=()):
        self.port = port or free_port()
        self.address = "127.0.0.1:%d" % self.port
        self.state = os.path.join(folder.path, state)
        super().__init__(list(prefix) + [SERVER, "--state", self.state, "--listen", self.address] + list(flags),
                         folder.file("server.log"))
        self.wait_ready()

    def restart(self):
        self.start()
        self.wait_ready()

    def wait_ready(self, timeout=20):
        deadline = time.time() + timeout
        while time.time() < deadline:
            if not self.alive():
                raise AssertionError("the server ended:\n" + self.output())
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the server does not listen:\n" + self.output())


class Worker(Process):
    """A worker group: `ranks` ranks under mpirun, or one process without it."""

    def __init__(self, folder, name, address, model, ranks=1, flags=()):
        command = [PREFILL, "--model", model, "--model-name", "tiny", "--dtype", "f32", "--threads", "1", "--max-tokens", "8",
                   "--ignore-eos", "--server", address] + list(flags)
        if ranks > 1:
            command = MPIRUN + ["-np", str(ranks)] + command
        super().__init__(command, folder.file(name + ".log"))


def tiny_model(folder, nan=False):
    path = folder.file("nan.gguf" if nan else "tiny.gguf")
    subprocess.run([WRITE_MODEL, path] + (["nan"] if nan else []), check=True)
    return path


def client(address, *arguments, **options):
    """Runs `snapkv`; the completed process."""
    command = [CLIENT, arguments[0], "--server", address] + list(arguments[1:])
    return subprocess.run(command, capture_output=True, text=True, timeout=options.pop("timeout", 300), **options)


def retried(call, timeout=30):
    """What call() returns, however often the server is away meanwhile."""
    import grpc
    deadline = time.time() + timeout
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.time() > deadline:
                raise
            time.sleep(0.1)


def eventually(condition, timeout, what):
    """Waits for condition() to be true and returns what it returned."""
    deadline = time.time() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.time() > deadline:
            raise AssertionError("not within %d s: %s" % (timeout, what))
        time.sleep(0.05)
