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
documents; the second one ends everything. On several hosts call mpirun yourself:
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

# The value of --threads among the program's flags, empty without it.
threads_flag() {
  local previous="" argument value=""
  for argument in "$@"; do
    if [[ "$previous" == --threads ]]; then value=$argument; fi
    if [[ "$argument" == --threads=* ]]; then value=${argument#--threads=}; fi
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
  threads=$(threads_flag "$@")
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

# Whether --progress is among the program's flags.
has_progress_flag() {
  local argument
  for argument in "$@"; do
    if [[ "$argument" == --progress || "$argument" == --progress=* ]]; then return 0; fi
  done
  return 1
}

# supervise MPIRUN...: runs it, hands the first SIGINT or SIGTERM to the ranks (mpirun would kill them seconds later,
# before they have finished their documents) and the second to mpirun. Ends with its exit code. A session of its own
# keeps the terminal's SIGINT from mpirun; should this script be killed, mpirun is told to end.
supervise() {
  local pid status=0 signals=0
  set +e  # a wait that a signal ends would end this script as well
  # shellcheck disable=SC2317  # called by the traps
  forward() {
    signals=$((signals + 1))
    if [[ $signals -eq 1 ]] && pkill "-$1" -P "$pid"; then return; fi
    kill -TERM "$pid" 2>/dev/null || true  # no rank yet, or the second signal
  }
  setsid setpriv --pdeathsig TERM -- "$@" <&0 &
  pid=$!
  trap 'forward INT' INT
  trap 'forward TERM' TERM
  while true; do
    status=0
    wait "$pid" || status=$?
    kill -0 "$pid" 2>/dev/null || break  # else a signal ended the wait
  done
  exit "$status"
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
  if [[ $ranks -gt 1 && -t 2 ]] && ! has_progress_flag "${program_flags[@]}"; then program_flags+=(--progress bar); fi
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
