# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the launch scripts share. The script that sources it sets ROOT (the repository) and NAME (in front of messages).

say() { printf '%s: %s\n' "$NAME" "$*" >&2; }
usage_error() { say "error: $*"; exit 2; }

# build TARGET...: builds them in build/release, one process at a time. Progress goes to stderr when that is a terminal,
# else to the log alone: stdout is the program's.
build() {
  command -v cmake >/dev/null || { say "error: cmake is missing: run launch/setup.sh first"; exit 1; }
  mkdir -p "$ROOT/build"
  local log=$ROOT/build/release.log
  exec 9>"$ROOT/build/.lock"
  flock 9
  say "building build/release (once; a few minutes); log: build/release.log"
  local sink=/dev/null
  if [[ -t 2 ]]; then sink=/dev/stderr; fi
  if ! (cd "$ROOT" && cmake --preset release && cmake --build --preset release --target "$@") 2>&1 |
    tee "$log" >"$sink"; then
    grep -E -A 5 'error|FAILED|Error' "$log" | tail -n 40 >&2 || tail -n 40 "$log" >&2
    say "error: the build failed (above; all of it in build/release.log)"
    exit 1
  fi
  exec 9>&-
}
