#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, runs the tests, and ends with one line of counts.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT

usage() {
  cat <<'EOF'
Usage: launch/test.sh [--preset release|debug|asan|tsan] [--filter REGEX]

  --preset NAME    what to build and test (default release). asan leaves out the tests labelled
                   'large', tsan runs those labelled 'tsan' only
  --filter REGEX   only the CTest entries whose names match
  --help           this text

Environment: SNAPKV_GOLDEN (folder of golden data), SNAPKV_MODEL (GGUF instead of the cached model),
CTEST_PARALLEL_LEVEL (default 2).
EOF
}

say() { printf 'test: %s\n' "$*" >&2; }

# attribute FILE NAME: an attribute of the <testsuite> element of a JUnit file.
attribute() { sed -n "s/^[[:space:]]*$2=\"\([0-9]*\)\".*/\1/p; s/.* $2=\"\([0-9]*\)\".*/\1/p" "$1" | head -n 1; }

# Sums N over the lines "[  WORD  ] N test(s)" that GoogleTest prints at the end of a binary.
count_cases() {
  sed -n "s/^\[  $2 *\] \([0-9]*\) test.*/\1/p" "$1" | awk '{ n += $1 } END { print n + 0 }'
}

main() {
  local preset=release filter=()
  while [[ $# -gt 0 ]]; do
    case "$1" in
      --preset) preset=${2:?--preset needs a name}; shift ;;
      --preset=*) preset=${1#--preset=} ;;
      --filter) filter=(-R "${2:?--filter needs a regular expression}"); shift ;;
      --filter=*) filter=(-R "${1#--filter=}") ;;
      -h | --help) usage; exit 0 ;;
      *) say "error: unknown argument '$1'"; usage >&2; exit 2 ;;
    esac
    shift
  done
  local labels=()
  case "$preset" in
    release | debug) ;;
    asan) labels=(-LE '^large$') ;;
    tsan) labels=(-L '^tsan$') ;;
    *) say "error: --preset is '$preset': use release, debug, asan or tsan"; exit 2 ;;
  esac

  local start=$SECONDS
  # Two tests share the cores: threads that wait must not spin.
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
  "$ROOT/launch/setup.sh"
  cd "$ROOT"
  cmake --preset "$preset"
  cmake --build --preset "$preset"
  say "built after $((SECONDS - start)) s"

  local build=$ROOT/build/$preset
  local log=$build/Testing/Temporary/LastTest.log junit=$build/Testing/junit.xml status=0
  ctest --preset "$preset" --output-on-failure --no-tests=error --output-junit "$junit" \
    -j "${CTEST_PARALLEL_LEVEL:-2}" "${labels[@]}" "${filter[@]}" || status=$?
  if [[ ! -r "$junit" ]]; then
    say "FAILED: ctest wrote no results (exit code $status)"
    exit 1
  fi

  # Reasons of skipped cases, once each, and the counts that golden tests print.
  grep -hE '^golden: ' "$log" | sort -u || true
  grep -hA1 -E ': Skipped$' "$log" | grep -vE ': Skipped$|^--$' | sort | uniq -c | sed 's/^ *\([0-9]*\) /skipped \1: /' || true
  printf '%s: %s CTest entries (%s failed, %s skipped), %s GoogleTest cases passed, %s skipped, preset %s, %s s\n' \
    "$([[ $status -eq 0 ]] && echo PASSED || echo FAILED)" \
    "$(attribute "$junit" tests)" "$(attribute "$junit" failures)" "$(attribute "$junit" skipped)" \
    "$(count_cases "$log" PASSED)" "$(count_cases "$log" SKIPPED)" "$preset" "$((SECONDS - start))"
  exit "$status"
}

main "$@"
