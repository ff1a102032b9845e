#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a summary: installs what is missing, builds, and summarises a short document over two MPI ranks.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
readonly DOCUMENT=docs/samples/1991-Bush-2.txt

say() { printf '%s\n' "$*" >&2; }

if [[ $# -gt 0 ]]; then
  say "Usage: launch/demo.sh"
  say "Installs what is missing, builds, and summarises $DOCUMENT over 2 MPI ranks."
  [[ "$1" == -h || "$1" == --help ]] && exit 0
  exit 2
fi

"$ROOT/launch/setup.sh"
cd "$ROOT"
command=(./launch/run.sh -n 2 --model smollm2 --input "$DOCUMENT" --max-tokens 200 --repeat-penalty 1.05)
say ""
say "\$ ${command[*]}"
say ""
"${command[@]}"
say ""
say "That was $DOCUMENT, $(wc -w <"$DOCUMENT") words, prefilled by 2 ranks, compressed by SnapKV and summarised by a
model of 135 million parameters. Next:
  ./launch/run.sh -n 2 --model smollm2 --input YOUR.txt        your own text (up to about 3,000 words with this model)
  ./launch/run.sh -n 2 --model PATH/TO/MODEL.gguf --input ...  a better model: any Llama or Qwen2 GGUF
  ./launch/run.sh --help                                       all flags
  ./launch/test.sh                                             all tests"
