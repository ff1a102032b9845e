# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the launch scripts share. The script that sources it sets ROOT (the repository) and NAME (in front of messages).

say() { printf '%s: %s\n' "$NAME" "$*" >&2; }
usage_error() { say "error: $*"; exit 2; }

# How often a build says how far it is, in seconds.
readonly BUILD_REPORT_S=${SNAPKV_BUILD_REPORT_S:-15}

# Says now and then how far the build that writes the log $1 is, until it is killed.
report_build() {
  local step last="" silence
  exec {silence}<> <(:)
  while ! read -r -t "$BUILD_REPORT_S" -u "$silence" _; do  # no sleep, which would outlive this and hold stderr open
    step=$(grep -oE '^\[[0-9]+/[0-9]+\]' "$1" | tail -n 1) || true
    if [[ -n "$step" && "$step" != "$last" ]]; then say "building: step ${step//[][]/}"; fi
    last=$step
  done
}

# build TARGET...: builds them in build/release, one process at a time. All output goes to the log: stdout is the
# program's.
build() {
  command -v cmake >/dev/null || { say "error: cmake is missing: run launch/setup.sh first"; exit 1; }
  mkdir -p "$ROOT/build"
  local log=$ROOT/build/release.log reporter status=0
  exec 9>"$ROOT/build/.lock"
  flock -n 9 || { say "waiting for another build of build/release; its log: build/release.log"; flock 9; }
  say "building build/release (once; a few minutes); log: build/release.log"
  : >"$log"
  report_build "$log" 9>&- &
  reporter=$!
  (cd "$ROOT" && cmake --preset release && cmake --build --preset release --target "$@") >"$log" 2>&1 ||
    status=$?
  kill "$reporter" 2>/dev/null || true
  wait "$reporter" 2>/dev/null || true
  if [[ $status -ne 0 ]]; then
    grep -E -A 5 'error|FAILED|Error' "$log" | tail -n 40 >&2 || tail -n 40 "$log" >&2
    say "error: the build failed (above; all of it in build/release.log)"
    exit 1
  fi
  say "built"
  exec 9>&-
}
