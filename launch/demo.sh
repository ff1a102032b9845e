#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to summaries: installs what is missing, builds, and summarises four short documents over two MPI
# ranks.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
readonly DOCUMENTS='docs/samples/*.txt'

say() { printf '%s\n' "$*" >&2; }

if [[ $# -gt 0 ]]; then
  say "Usage: launch/demo.sh"
  say "Installs what is missing, builds, and summarises $DOCUMENTS over 2 MPI ranks."
  [[ "$1" == -h || "$1" == --help ]] && exit 0
  exit 2
fi

"$ROOT/launch/setup.sh"
cd "$ROOT"
command=(./launch/run.sh -n 2 --model smollm2 --input "$DOCUMENTS" --max-tokens 120 --repeat-penalty 1.05)
say ""
say "\$ ${command[*]@Q}"
say ""
"${command[@]}"
say ""
say "Each document was prefilled by 2 ranks, compressed by SnapKV, and decoded together with the others on rank 0, by a
model of 135 million parameters. Next:
  ./launch/run.sh -n 2 --model smollm2 --input YOUR.txt        your own text (beyond some 1,500 words this model invents facts)
  ./launch/run.sh -n 2 --model smollm2 --input FOLDER --output out.jsonl
                                                               a batch with records; docs/batch.md has all about it
  ./launch/run.sh -n 2 --model PATH/TO/MODEL.gguf --input ...  a better model: any Llama or Qwen2 GGUF
  ./launch/run.sh --help                                       all flags
  ./launch/test.sh                                             all tests"
