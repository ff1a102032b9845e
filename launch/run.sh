#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs snapkv-prefill over N ranks, with the flags that mpirun needs here and no others.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
readonly NAME=run
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/launch/lib.sh"
# How long ranks have after a signal to mpirun itself before it kills them. Its own default is one second. mpirun waits
# about twice this long even when a rank is dead already, so it must stay small.
readonly SIGKILL_TIMEOUT_S=3
# For ranks to appear before a signal ends a launch, to end after the second signal, and after mpirun was killed.
readonly START_GRACE_S=5 KILL_GRACE_S=10 ORPHAN_GRACE_S=5
# The program's exit codes that this script gives as well.
readonly CODE_JOB_FAILED=7 CODE_LOST_RANK=70

usage() {
  cat <<'EOF'
Usage: launch/run.sh [-n RANKS] [--build-dir DIR] [--dry-launch] [--] PROGRAM FLAGS...

Runs snapkv-prefill on this machine. Everything that is not listed here is passed to it as it stands.
  ./launch/run.sh -n 4 --model smollm2 --input report.txt

  -n RANKS          MPI ranks; without it, or with 1, the program runs alone, without mpirun
  --build-dir DIR   take the program from this build instead of build/release, which is built
                    when it is not there
  --dry-launch      print the command instead of running it
  --                what follows is for the program, even -n
  -h, --help        this text and the program's own help

mpirun gets --allow-run-as-root when you are root, --oversubscribe when there are more ranks than
cores, --bind-to none when ranks must not be tied to one core each (several threads per rank, or a
process that may not use all cores). SIGINT and SIGTERM go to the ranks, which finish their open
documents; the second one ends everything. When a rank is killed, and when mpirun is, the exit code is
70 as for every lost rank (mpirun itself would give 137). On several hosts call mpirun yourself:
  mpirun -np 16 --hostfile hosts build/release/launch/snapkv-prefill --model M.gguf --input report.txt

EOF
}

# Expands "0-3,8" to one number a line.
expand_list() {
  local part
  for part in ${1//,/ }; do
    seq "${part%-*}" "${part#*-}"
  done
}

# Cores (not hardware threads) that this process may use: what mpirun calls slots. Without sysfs, CPUs.
count_cores() {
  local allowed cpu file
  allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
  for cpu in $(expand_list "$allowed"); do
    file=/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list
    if [[ -r $file ]]; then cat "$file"; else echo "$cpu"; fi
  done | sort -u | wc -l
}

# Whether this process is kept from some of the machine's CPUs: mpirun would bind ranks to those all the same.
is_confined() {
  local allowed online
  allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
  online=$(cat /sys/devices/system/cpu/online 2>/dev/null || echo "$allowed")
  [[ "$allowed" != "$online" ]]
}

# flag_value NAME FLAGS...: the value of a flag among the program's, empty without it.
flag_value() {
  local name=$1 previous="" argument value=""
  shift
  for argument in "$@"; do
    if [[ "$previous" == "$name" ]]; then value=$argument; fi
    if [[ "$argument" == "$name="* ]]; then value=${argument#"$name"=}; fi
    previous=$argument
  done
  printf '%s' "$value"
}

# A scheduler or a host file knows the slots better than we do.
has_allocation() {
  [[ -n "${SLURM_JOB_ID:-}${PBS_JOBID:-}${LSB_JOBID:-}${OMPI_MCA_orte_default_hostfile:-}" ]]
}

# mpirun_flags RANKS PROGRAM_FLAGS...: one flag a line.
mpirun_flags() {
  local ranks=$1 cores threads
  shift
  cores=$(count_cores)
  threads=$(flag_value --threads "$@")
  # Without its banners below our own messages. They include those of a launch that fails: see explain_launch.
  echo -q
  if [[ $(id -u) -eq 0 ]]; then echo --allow-run-as-root; fi
  if [[ $ranks -gt $cores ]] && ! has_allocation; then echo --oversubscribe; fi
  # One rank per core is mpirun's default and right only when every rank is to have one core: a rank's default thread
  # count is what it may use, so with cores to spare, binding would leave them idle.
  if [[ "${threads:-1}" != 1 ]] || [[ $ranks -gt $cores ]] || { [[ -z "$threads" ]] && [[ $ranks -lt $cores ]]; } ||
    is_confined; then
    printf '%s\n' --bind-to none
  fi
  if [[ -z "${OMPI_MCA_odls_base_sigkill_timeout:-}" ]]; then
    printf '%s\n' --mca odls_base_sigkill_timeout "$SIGKILL_TIMEOUT_S"
  fi
}

# " with --resume" where the program's flags name an output that a second run can go on with.
with_resume() {
  local output
  output=$(flag_value --output "$@")
  case "$output" in
    "" | - | /dev/*) ;;
    *) printf ' with --resume' ;;
  esac
}

# explain_launch CODE MPIRUN...: no rank has run, and -q has hidden why. The same launch again, of nothing, says it.
explain_launch() {
  local code=$1 argument probe=()
  shift
  say "error: mpirun could not start the ranks (its exit code: $code)"
  for argument in "$@"; do
    if [[ "$argument" == */launch/snapkv-prefill ]]; then break; fi
    if [[ "$argument" != -q ]]; then probe+=("$argument"); fi
  done
  timeout 60 "${probe[@]}" true >&2 </dev/null || true
}

# report_lost CODE MPIRUN...: what is said when mpirun ends with a code that a signal makes.
report_lost() {
  local code=$1 name
  shift
  name=$(kill -l "$((code - 128))" 2>/dev/null || echo "$((code - 128))")
  local cause=""
  if [[ "$name" == KILL ]]; then cause=", by hand or for want of memory"; fi
  say "error: a rank (or mpirun) was killed by signal $name$cause; what is written stays: start again$(with_resume "$@")"
}

# The mpirun that supervise watches, which leads a session of its own.
MPIRUN=0
# What on_signal has noted: the first signal, how many there were, and one that the ranks have not got yet.
FIRST_SIGNAL="" SIGNALS=0 PENDING=""
# A pipe that nothing comes from.
SILENCE=0

on_signal() {
  SIGNALS=$((SIGNALS + 1))
  PENDING=$1
  FIRST_SIGNAL=${FIRST_SIGNAL:-$1}
}

# Bash takes the end of a child note of by itself: a dead one is gone.
is_running() { kill -0 "$MPIRUN" 2>/dev/null; }
# Without a process of its own, and unlike wait it cannot miss a signal for long.
pause() { read -r -t 0.2 -u "$SILENCE" _; }
kill_session() { pkill -KILL -s "$MPIRUN"; }

# watch: returns when mpirun has ended; 1 if no rank was ever seen. Signals go to the ranks and never to mpirun, which would
# kill them seconds later, before they have finished their documents, and crashes when one comes while it ends. The ranks
# end at once at the second; what is left some seconds after it, or at the third, is killed.
watch() {
  local seen=0 kill_at=""
  while is_running; do
    if [[ $seen -eq 0 ]] && pgrep -P "$MPIRUN" >/dev/null; then seen=1; fi
    if [[ -n "$PENDING" ]]; then
      # With no rank to be found, mpirun has not started them yet or is ending.
      if pkill "-$PENDING" -P "$MPIRUN" || [[ $seen -eq 1 ]]; then
        PENDING="" kill_at=""
      else
        kill_at=${kill_at:-$((SECONDS + START_GRACE_S))}
      fi
      case "$SIGNALS" in
        1) ;;
        2) kill_at=${kill_at:-$((SECONDS + KILL_GRACE_S))} ;;
        *) kill_at=$SECONDS ;;
      esac
    fi
    if [[ -n "$kill_at" && $SECONDS -ge $kill_at ]]; then kill_session; fi
    pause
  done
  [[ $seen -eq 1 ]]
}

# supervise MPIRUN...: runs it and ends with the program's exit code. A session of its own keeps the terminal's SIGINT from
# mpirun and the ranks; should this script be killed, mpirun is told to end.
supervise() {
  local status=0 launched=1 i
  set +e  # a wait that a signal ends would end this script as well
  trap 'on_signal INT' INT
  trap 'on_signal TERM' TERM
  setsid setpriv --pdeathsig TERM -- "$@" <&0 &
  MPIRUN=$!
  exec {SILENCE}<> <(:)
  watch 2>/dev/null || launched=0  # bash would say in its own words that mpirun was killed
  wait "$MPIRUN" 2>/dev/null
  status=$?
  if [[ $status -lt 128 ]]; then
    case "$status" in
      0 | 2 | 3 | 6 | 7 | 70 | 124) ;;
      *) if [[ $launched -eq 0 ]]; then explain_launch "$status" "$@"; fi ;;
    esac
    exit "$status"
  fi
  # Ranks notice soon that mpirun was killed; whoever starts again must find them gone.
  for ((i = 0; i < 5 * ORPHAN_GRACE_S; i++)); do
    pgrep -s "$MPIRUN" >/dev/null || break
    pause
  done
  kill_session
  if [[ $SIGNALS -ge 2 || ($SIGNALS -eq 1 && $launched -eq 0) ]]; then exit "$((128 + $(kill -l "$FIRST_SIGNAL")))"; fi
  case "$status" in
    130 | 143) exit "$status" ;;
  esac
  if [[ $launched -eq 0 ]]; then
    explain_launch "$status" "$@"
    exit "$CODE_JOB_FAILED"
  fi
  report_lost "$status" "$@"
  exit "$CODE_LOST_RANK"
}

main() {
  local ranks=1 dry=0 help=0 build_dir="" program_flags=()
  while [[ $# -gt 0 ]]; do
    case "$1" in
      -n) [[ $# -ge 2 ]] || usage_error "-n needs a number of ranks"
          ranks=$2; shift ;;
      -n[0-9]*) ranks=${1#-n} ;;
      --build-dir) [[ $# -ge 2 ]] || usage_error "--build-dir needs a folder"
          build_dir=$2; shift ;;
      --build-dir=*) build_dir=${1#--build-dir=} ;;
      --dry-launch) dry=1 ;;
      -h | --help) help=1 ;;
      --) shift; program_flags+=("$@"); break ;;
      *) program_flags+=("$1") ;;
    esac
    shift
  done
  [[ "$ranks" =~ ^[1-9][0-9]{0,3}$ ]] || usage_error "-n is '$ranks': give a number of ranks from 1 to 9999"

  local program="${build_dir:-$ROOT/build/release}/launch/snapkv-prefill"
  if [[ $help -eq 1 ]]; then
    usage
    if [[ -x "$program" ]]; then exec "$program" --help; fi
    echo "(The program's own flags are listed here once it is built.)"
    exit 0
  fi

  # A rank under mpirun never sees a terminal.
  if [[ $ranks -gt 1 && -t 2 && -z "$(flag_value --progress "${program_flags[@]}")" ]]; then program_flags+=(--progress bar); fi
  local command=("$program" "${program_flags[@]}")
  if [[ $ranks -gt 1 ]]; then
    local flags
    mapfile -t flags < <(mpirun_flags "$ranks" "${program_flags[@]}")
    command=(mpirun -np "$ranks" "${flags[@]}" "${command[@]}")
  fi
  if [[ $dry -eq 1 ]]; then
    printf '%q ' "${command[@]}"
    printf '\n'
    exit 0
  fi
  if [[ ! -x "$program" ]]; then
    [[ -z "$build_dir" ]] || usage_error "--build-dir '$build_dir' has no launch/snapkv-prefill: build it first"
    build snapkv-prefill
  fi
  if [[ $ranks -gt 1 ]] && ! command -v mpirun >/dev/null; then
    say "error: mpirun is missing: run launch/setup.sh first, or leave out -n"
    exit 1
  fi
  if [[ $ranks -gt 1 ]]; then supervise "${command[@]}"; fi
  exec "${command[@]}"
}

main "$@"
