#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops or kills one rank of a running MPI job and checks how the job ends.

Usage: stall_test.py PROGRAM MODE SIGNAL RANKS -- MPIRUN [ARGS]
MODE is ring, collective or compute; SIGNAL is STOP or KILL. Every rank of {0, 1, last} is the victim once.
STOP: all ranks end within time-out + 5 s, mpirun exits with 70, and one line names the victim.
KILL: all ranks end within 10 s and mpirun's exit code is not 0.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 2.0
MARK = "--comm-timeout"


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_pids(folder, ranks, job):
    end = time.monotonic() + 60
    while time.monotonic() < end and job.poll() is None:
        pids = []
        for r in range(ranks):
            path = os.path.join(folder, f"rank.{r}")
            text = open(path).read() if os.path.exists(path) else ""
            if text.endswith("\n"):
                pids.append(int(text))
        if len(pids) == ranks:
            return pids
        time.sleep(0.02)
    return None


def disturb(program, mode, sig, ranks, victim, mpirun):
    """Returns a list of what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        command = mpirun + ["-np", str(ranks), program, folder, mode, str(TIMEOUT_S)]
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
        pids = wait_for_pids(folder, ranks, job)
        if pids is None:
            job.kill()
            return [f"the job did not start: {job.communicate()[1]}"]
        time.sleep(0.5)
        start = time.monotonic()
        os.kill(pids[victim], getattr(signal, "SIG" + sig))
        limit = TIMEOUT_S + 5 if sig == "STOP" else 10
        wrong = []
        try:
            stderr = job.communicate(timeout=limit + 20)[1]
        except subprocess.TimeoutExpired:
            job.kill()
            stderr = job.communicate()[1] if sig == "KILL" else ""
            wrong.append("mpirun did not end")
        took = time.monotonic() - start
        lines = [line for line in stderr.splitlines() if MARK in line]
        if took > limit:
            wrong.append(f"took {took:.1f} s, allowed are {limit:.1f} s")
        left = [pid for pid in pids if alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if left:
            wrong.append(f"processes left behind: {left}")
        if sig == "STOP":
            if job.returncode != 70:
                wrong.append(f"exit code {job.returncode} instead of 70")
            if len(lines) != 1 or not lines[0].startswith(f"error: rank {victim} ("):
                wrong.append(f"expected one line that names rank {victim} alone, got {lines}")
        elif job.returncode == 0:
            wrong.append("exit code 0 after a rank was killed")
        print(f"{mode} SIG{sig} rank {victim} of {ranks}: {took:.1f} s, exit code {job.returncode}, {lines}",
              flush=True)
        return wrong + ([f"stderr was: {stderr}"] if wrong else [])


def main():
    split = sys.argv.index("--")
    program, mode, sig, ranks = sys.argv[1:split]
    mpirun = sys.argv[split + 1:]
    ranks = int(ranks)
    failures = 0
    for victim in sorted({0, 1, ranks - 1}):
        for problem in disturb(program, mode, sig, ranks, victim, mpirun):
            print(f"FAILED: {mode} SIG{sig} rank {victim}: {problem}", flush=True)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
