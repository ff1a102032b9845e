# SPDX-License-Identifier: Apache-2.0
"""The committed files of a source tree, for the tests that read sources."""
import os
import subprocess

# What is never ours: build output, caches, version control.
SKIPPED_FOLDERS = {"build", ".git", ".cache", ".whl", "__pycache__"}


def committed_files(root):
    """Paths relative to `root`, sorted: what git tracks or would add; without git, all but SKIPPED_FOLDERS."""
    try:
        listing = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
        files = [f for f in listing.split("\0") if f]
    except (OSError, subprocess.CalledProcessError):
        files = []
        for parent, folders, names in os.walk(root):
            folders[:] = [d for d in folders if d not in SKIPPED_FOLDERS]
            files += [os.path.relpath(os.path.join(parent, n), root) for n in names]
    return sorted({f for f in files if os.path.isfile(os.path.join(root, f))})


def read_text(root, path):
    """The file's text, or None when it is binary."""
    with open(os.path.join(root, path), "rb") as f:
        data = f.read()
    if b"\0" in data:
        return None
    return data.decode("utf-8", errors="replace")
