#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bad value for every flag of snapkv-server: exit code 2 and one line that names the flag; files are for their owner only."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

BAD = [("--listen", "127.0.0.1:99999"), ("--listen", "127.0.0.1"), ("--listen", "nonsense"), ("--metrics-port", "0"),
       ("--metrics-address", "foo"), ("--log-format", "xml"), ("--max-message-bytes", "0"), ("--max-chunk-bytes", "1T"),
       ("--max-inline-bytes", "x"), ("--max-document-bytes", "-1"), ("--max-job-bytes", "0"), ("--max-job-documents", "0"),
       ("--max-queued-jobs", "0"), ("--max-tenant-jobs", "-1"), ("--max-streams", "0"), ("--max-interactive", "0"),
       ("--max-attempts", "0"), ("--lease", "nan"), ("--lease", "0"), ("--job-ttl", "nan"), ("--retention", "nan"),
       ("--request-id-ttl", "nan"), ("--aging", "nan"), ("--heartbeat", "nan"), ("--drain-timeout", "nan"),
       ("--nonsense", "1")]


def run():
    folder = harness.Folder("flags")
    for flag, value in BAD:
        done = subprocess.run([harness.SERVER, "--state", folder.file("s"), flag, value], capture_output=True, text=True,
                              timeout=20)
        assert done.returncode == 2, (flag, value, done)
        assert flag.strip("-") in done.stderr and done.stdout == "", (flag, value, done.stderr)
    done = subprocess.run([harness.SERVER], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "--state" in done.stderr, done
    missing = [("--token-file", "nowhere", "--token-file"), ("--tls-client-ca", "nowhere", "--tls-cert")]
    for flag, value, named in missing:
        done = subprocess.run([harness.SERVER, "--state", folder.file("s2"), flag, value], capture_output=True, text=True,
                              timeout=20)
        assert done.returncode in (2, 3) and named in done.stderr, (flag, done)
    os.mkdir(folder.file("open"), 0o755)
    server = harness.Server(folder, state="open")
    try:
        for name in os.listdir(server.state):
            mode = os.stat(os.path.join(server.state, name)).st_mode & 0o777
            assert mode & 0o077 == 0, (name, oct(mode))
        assert server.terminate() == 0
    finally:
        if server.alive():
            server.kill_all()
    folder.remove()
    print("%d bad values refused by name" % len(BAD))


if __name__ == "__main__":
    run()
