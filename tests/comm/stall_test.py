#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disturbs MPI jobs of stall_program and checks how they end.

Usage: stall_test.py PROGRAM CASE RANKS -- MPIRUN [ARGS]
Cases, MODE being ring, collective, compute or poll:
  stop_MODE  SIGSTOP to rank 0, 1 and the last: all end within time-out + 5 s, exit code 70, one line names the rank
  kill_MODE  SIGKILL likewise: all end within 10 s with a non-zero exit code
  suspend    all ranks stopped for longer than the time-out, as by Ctrl-Z: the job goes on afterwards
  late       a rank that does not arrive, in every operation, while computing and in MPI_Finalize
  deadlock   ranks that wait for each other
  error      an error of one rank ends all, with that rank's exit code
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 2.0
OPERATIONS = ["barrier", "broadcast", "allgather", "sum", "max", "exchange", "tensorbroadcast", "tensorallgather"]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Job:
    """One mpirun; `wrong` collects what is not as it should be."""

    def __init__(self, args, mode, timeout_s=TIMEOUT_S):
        self.folder = tempfile.TemporaryDirectory()
        self.ranks = args.ranks
        self.wrong = []
        command = args.mpirun + ["-np", str(args.ranks), args.program, self.folder.name, mode, str(timeout_s)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self.pids = self._wait_for_pids()

    def _wait_for_pids(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            texts = []
            for r in range(self.ranks):
                path = os.path.join(self.folder.name, f"rank.{r}")
                texts.append(open(path).read() if os.path.exists(path) else "")
            if all(text.endswith("\n") for text in texts):
                return [int(text) for text in texts]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.wrong.append("the job did not start")
        return []

    def send(self, name, ranks):
        for r in ranks:
            if self.pids:
                os.kill(self.pids[r], getattr(signal, "SIG" + name))

    def end(self, limit_s, exit_code, line):
        """Waits for the end; `line` is a pattern for the one line of ours, or None for no line."""
        start = time.monotonic()
        try:
            stderr = self.process.communicate(timeout=limit_s + 20)[1]
        except subprocess.TimeoutExpired:
            self.wrong.append("mpirun did not end")
            for pid in [self.process.pid] + self.pids:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            stderr = self.process.communicate()[1]
        # mpirun may be gone a moment before the last rank is.
        while any(alive(pid) for pid in self.pids) and time.monotonic() < start + limit_s:
            time.sleep(0.02)
        took = time.monotonic() - start
        left = [pid for pid in self.pids if alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        lines = [text for text in stderr.splitlines() if text.startswith("error: ")]
        code = self.process.returncode
        if took > limit_s:
            self.wrong.append(f"took {took:.1f} s, allowed are {limit_s:.1f} s")
        if left:
            self.wrong.append(f"processes left behind: {left}")
        if code != exit_code and not (exit_code is None and code != 0):
            self.wrong.append(f"exit code {code}, expected {exit_code or 'any but 0'}")
        if line is None and lines or line is not None and (len(lines) != 1 or not re.match(line, lines[0])):
            self.wrong.append(f"lines {lines}, expected one like {line!r}")
        if "Sanitizer" in stderr or "runtime error" in stderr or "check failed" in stderr:
            self.wrong.append("a rank crashed")
        if self.wrong:
            self.wrong.append(f"stderr was: {stderr}")
        print(f"  {took:.1f} s, exit code {code}, {lines}", flush=True)
        return self.wrong


def signalled(args, name, mode):
    """Yields (what was done, what was wrong) for each victim."""
    for victim in sorted({0, 1, args.ranks - 1}):
        print(f"SIG{name} to rank {victim} in {mode}", flush=True)
        job = Job(args, mode)
        time.sleep(0.5)
        job.send(name, [victim])
        if name == "STOP":
            line = rf"error: rank {victim} \([^)]*\) did not respond for 2 s \(--comm-timeout\)"
            yield f"SIGSTOP to {victim}", job.end(TIMEOUT_S + 5, 70, line)
        else:
            yield f"SIGKILL to {victim}", job.end(10, None, None)


def late(args):
    line = r"error: rank 1 \([^)]*\) did not respond for 1 s \(--comm-timeout\)"
    for mode in [f"late_{operation}" for operation in OPERATIONS] + ["polling", "busy0"]:
        print(mode, flush=True)
        yield mode, Job(args, mode, 1).end(1 + 5, 70, line + (": still busy" if mode == "polling" else ": stopped"))
    print("finalize", flush=True)
    yield "finalize", Job(args, "finalize", 1).end(1 + 5, 70, "error: MPI_Finalize did not return within 1 s")


def suspend(args):
    for mode in ["ring", "poll"]:
        print(f"suspend in {mode}", flush=True)
        job = Job(args, mode)
        time.sleep(0.5)
        job.send("STOP", range(args.ranks))
        time.sleep(TIMEOUT_S + 2)
        job.send("CONT", range(args.ranks))
        time.sleep(TIMEOUT_S + 3)
        if job.process.poll() is not None:
            job.wrong.append("the job ended after it was continued")
        job.send("KILL", [0])
        yield f"suspend in {mode}", job.end(10, None, None)


def main():
    class Args:
        pass

    args = Args()
    split = sys.argv.index("--")
    args.program, case, ranks = sys.argv[1:split]
    args.ranks = int(ranks)
    args.mpirun = sys.argv[split + 1:]
    if case.startswith(("stop_", "kill_")):
        name, mode = case.split("_")
        results = signalled(args, name.upper(), mode)
    elif case == "suspend":
        results = suspend(args)
    elif case == "late":
        results = late(args)
    elif case == "deadlock":
        line = r"error: deadlock: .*rank 0 waits for rank \d+ in Barrier.*rank \d+ waits for rank 0 in FinishExchange"
        line = line if args.ranks == 2 else r"error: deadlock: "
        results = [(case, Job(args, "deadlock", 1).end(1 + 5, 70, line))]
    elif case == "error":
        results = [(case, Job(args, "error", 60).end(5, 3, r"error: model.gguf: no such file$"))]
    else:
        sys.exit(f"stall_test.py: no case {case}")
    failed = 0
    for what, wrong in results:
        for problem in wrong:
            print(f"FAILED: {what}: {problem}", flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
