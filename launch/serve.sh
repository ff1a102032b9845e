#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the job server and one worker group on this machine, for a first try.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
readonly NAME=serve
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$ROOT/launch/lib.sh"
# The server opens its state folder and listens within this time; a large folder is checked at the start.
readonly START_TIMEOUT_S=60

usage() {
  cat <<'EOF_USAGE'
Usage: launch/serve.sh [-n RANKS] [--port PORT] [--model MODEL] [--state DIR] [--metrics-port PORT]
                       [--build-dir DIR] [--dry-launch] [-- WORKER FLAGS...]

Starts snapkv-server on 127.0.0.1 and one worker group (snapkv-prefill --server), prints how to
submit documents, and runs until Ctrl-C: then the worker hands back what it holds, and the server
ends. Jobs stay in the state folder; the next start goes on with them.

  -n RANKS             MPI ranks of the worker group; default 1
  --port PORT          of the server; default 7411
  --model MODEL        smollm2 (default) or a path
  --state DIR          default ${XDG_STATE_HOME:-~/.local/state}/snapkv
  --metrics-port PORT  Prometheus metrics at http://127.0.0.1:PORT/metrics
  --build-dir DIR      take the programs from this build instead of build/release, which is built
                       when they are not there
  --dry-launch         print the two commands instead of running them
  --                   what follows is for snapkv-prefill, e.g. -- --max-batch 16
  -h, --help           this text

More worker groups may join from other terminals:
  ./launch/run.sh -n 2 --model smollm2 --server 127.0.0.1:7411
For more than one machine see docs/operations.md.
EOF_USAGE
}

is_port() { [[ "$1" =~ ^[1-9][0-9]{0,4}$ && "$1" -le 65535 ]]; }

# Whether something listens on a port of this machine.
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# --- The two children. In sessions of their own, so that the terminal's Ctrl-C reaches this script alone; should it be
# killed, they are told to end.
server_pid=""
worker_pid=""
signals=0

start() { setsid setpriv --pdeathsig TERM -- "$@" </dev/null & }

# The first signal ends the worker group, after which supervise ends the server. Both take a second one as "now".
# shellcheck disable=SC2317  # called by the traps
on_signal() {
  signals=$((signals + 1))
  local pids=("$worker_pid")
  if [[ $signals -ge 2 ]]; then pids+=("$server_pid"); fi
  kill -TERM "${pids[@]}" 2>/dev/null
}

# wait_child PID: its exit code, however many signals come meanwhile.
wait_child() {
  local status
  while true; do
    wait "$1"
    status=$?
    kill -0 "$1" 2>/dev/null || return "$status"  # else a signal ended the wait
  done
}

end_child() {
  kill -TERM "$1" 2>/dev/null
  wait_child "$1"
}

# Until the server listens; 1 when it has ended before, or a signal came.
wait_for_server() {
  local tries=$((START_TIMEOUT_S * 10))
  while ! listens "$1"; do
    if [[ $signals -gt 0 ]] || ! kill -0 "$server_pid" 2>/dev/null; then return 1; fi
    if [[ $((tries--)) -le 0 ]]; then
      say "error: the server does not listen on port $1 after $START_TIMEOUT_S s"
      return 1
    fi
    sleep 0.1
  done
}

# Ends with the exit code of what failed; 0 after a signal that both programs have followed.
supervise() {
  local port=$1 ended="" status=0 server_status=0
  local -n server_command=$2 worker_command=$3
  set +e  # waits that a signal ends are no failures
  trap on_signal INT TERM
  start "${server_command[@]}"
  server_pid=$!
  if ! wait_for_server "$port"; then
    end_child "$server_pid"
    status=$?
    if [[ $signals -eq 0 && $status -eq 0 ]]; then status=1; fi
    return "$status"
  fi
  start "${worker_command[@]}"
  worker_pid=$!
  print_next "$port"
  if [[ $signals -gt 0 ]]; then kill -TERM "$worker_pid"; fi  # it came before there was one
  while [[ $signals -eq 0 && -z "${ended:-}" ]]; do
    wait -n -p ended "$server_pid" "$worker_pid"
    status=$?
  done
  if [[ $signals -eq 0 && "$ended" == "$server_pid" ]]; then
    say "error: the server has ended (exit code $status)"
    end_child "$worker_pid"
    return $((status == 0 ? 1 : status))
  fi
  if [[ $signals -eq 0 ]]; then
    say "error: the worker group has ended (exit code $status)"
    end_child "$server_pid"
    return $((status == 0 ? 1 : status))
  fi
  say "ending: the worker finishes or hands back its documents; again to end at once"
  if [[ "${ended:-}" != "$worker_pid" ]]; then
    wait_child "$worker_pid"
    status=$?
  fi
  end_child "$server_pid"
  server_status=$?
  # A worker that was told to end may say so by its exit code.
  if [[ $status -eq 130 || $status -eq 143 ]]; then status=0; fi
  return $((server_status == 0 ? status : server_status))
}

print_next() {
  local client=$programs/snapkv
  client=${client#"$PWD"/}
  say "the server is ready; the worker group is loading its model. From another terminal:"
  printf '  %s\n' \
    "$client submit --server 127.0.0.1:$1 docs/samples/*.txt --prompt \"Summarize the speech.\" --wait" \
    "$client list --server 127.0.0.1:$1" \
    "$client models --server 127.0.0.1:$1" >&2
  say "Ctrl-C ends both"
}

main() {
  local ranks=1 port=7411 model=smollm2 state="" metrics_port="" build_dir="" dry=0 worker_flags=()
  while [[ $# -gt 0 ]]; do
    case "$1" in
      -n | --port | --model | --state | --metrics-port | --build-dir)
        [[ $# -ge 2 ]] || usage_error "$1 needs a value"
        case "$1" in
          -n) ranks=$2 ;;
          --port) port=$2 ;;
          --model) model=$2 ;;
          --state) state=$2 ;;
          --metrics-port) metrics_port=$2 ;;
          --build-dir) build_dir=$2 ;;
        esac
        shift ;;
      --port=* | --model=* | --state=* | --metrics-port=* | --build-dir=*)
        set -- "${1%%=*}" "${1#*=}" "${@:2}"
        continue ;;
      -n[0-9]*) ranks=${1#-n} ;;
      --dry-launch) dry=1 ;;
      -h | --help) usage; exit 0 ;;
      --) shift; worker_flags=("$@"); break ;;
      *) usage_error "unknown argument '$1' (flags of snapkv-prefill stand behind --)" ;;
    esac
    shift
  done
  [[ "$ranks" =~ ^[1-9][0-9]{0,3}$ ]] || usage_error "-n is '$ranks': give a number of ranks from 1 to 9999"
  is_port "$port" || usage_error "--port is '$port': give a port from 1 to 65535"
  [[ -z "$metrics_port" ]] || is_port "$metrics_port" || usage_error "--metrics-port is '$metrics_port': give a port from 1 to 65535"
  if [[ -z "$state" ]]; then
    local base=${XDG_STATE_HOME:-${HOME:+$HOME/.local/state}}
    [[ "$base" == /* ]] || usage_error "neither XDG_STATE_HOME (an absolute path) nor HOME is set: give --state DIR"
    state=$base/snapkv
  fi

  programs=${build_dir:-$ROOT/build/release}/launch
  # shellcheck disable=SC2034  # used by name
  local server=("$programs/snapkv-server" --state "$state" --listen "127.0.0.1:$port")
  if [[ -n "$metrics_port" ]]; then server+=(--metrics-port "$metrics_port"); fi
  local worker=("$ROOT/launch/run.sh" -n "$ranks" --build-dir "${build_dir:-$ROOT/build/release}" --
    --model "$model" --server "127.0.0.1:$port" "${worker_flags[@]}")
  if [[ $dry -eq 1 ]]; then
    printf '%q ' "${server[@]}"
    printf '\n'
    printf '%q ' "${worker[@]}"
    printf '\n'
    exit 0
  fi
  if [[ ! -x "$programs/snapkv-server" || ! -x "$programs/snapkv-prefill" ]]; then
    [[ -z "$build_dir" ]] || usage_error "--build-dir '$build_dir' has no launch/snapkv-server and launch/snapkv-prefill: build them first"
    build snapkv-server snapkv-prefill snapkv
  fi
  if listens "$port"; then
    say "error: something listens on port $port already: end it, or choose another port with --port"
    exit 1
  fi
  (umask 077 && mkdir -p -- "$state") || { say "error: cannot create the state folder '$state'"; exit 1; }
  local status=0
  supervise "$port" server worker || status=$?
  exit "$status"
}

main "$@"
