#!/usr/bin/env bash
# One recipe for real models and data, from the data to its table: run.sh RECIPE [KEY=VALUE]...
#
#   DATA=DIR MODEL=DIR OUT=DIR benchmarks/real/run.sh squad_memory trainer.seed=1
#
# DATA   folder with xquad_en_train.json, nq_qed.json, gsm8k_train.jsonl, hotpotqa_sample.json
# MODEL  the folder of `recollect model smollm2 --out DIR`
# OUT    where everything goes; what is there already is not made again
# LIMIT  seconds that one command may take (default 600)
# SKIP   phases that are left out, such as "base concat rag"
# EMBEDDING  of squad_search: a sentence-transformers folder, for dense search beside BM25
set -euo pipefail
recipe=${1:?name a recipe: squad_memory, gsm8k_tools, squad_search or squad_stages}
shift
: "${DATA:?}" "${MODEL:?}" "${OUT:?}"
python=${PYTHON:-python3}
sizes=${SIZES:-4 16 64} # paragraphs of test documents
shares=75,5,20
mkdir -p "$OUT"

recollect() { timeout "${LIMIT:-600}" "$python" -m recollect "$@"; }
wanted() { [[ " ${SKIP:-} " != *" $1 "* ]]; }
say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

squad() { # squad NAME SPLIT PARAGRAPHS...: a file of tasks
  local name=$1 split=$2 words=()
  shift 2
  for n in "$@"; do words+=(--paragraphs "$n"); done
  [[ -e $OUT/$name.jsonl ]] || recollect data squad "$DATA/xquad_en_train.json" "$DATA/nq_qed.json" "$OUT/$name.jsonl" \
    "${words[@]}" --split "$split" --shares $shares
}

measure() { # measure NAME CHECKPOINT [WORDS]...: results in OUT/NAME.json
  local name=$1
  shift
  say "eval $name"
  recollect eval "$@" --out "$OUT/$name"
}

compare() { recollect compare "$@" | tee -a "$OUT/$recipe.txt"; }

squad_memory() {
  # shellcheck disable=SC2086
  squad squad_train train 4 8 && squad squad_tune tune 4 && squad squad_test test $sizes
  local run=$OUT/squad_memory test=data.val_files=$OUT/squad_test.jsonl
  say train
  recollect train squad_memory actor_rollout_ref.model.path="$MODEL" data.train_files="$OUT/squad_train.jsonl" \
    data.val_files="$OUT/squad_tune.jsonl" trainer.default_local_dir="$run" "$@"
  measure memory_rl "$run" "$test"
  measure memory_sft "$run/checkpoints/step-0" "$test"
  if wanted base; then measure memory_base "$MODEL" squad_memory "$test" "$@" --baseline concat --baseline rag; fi
  for agent in concat rag; do
    wanted $agent || continue
    say "SFT of $agent"
    recollect sft squad_memory actor_rollout_ref.model.path="$MODEL" data.train_files="$OUT/squad_train.jsonl" \
      agent.agent_type=$agent trainer.default_local_dir="$OUT/$agent" "$@"
    measure "${agent}_sft" "$OUT/$agent" "$test"
    compare "$OUT/${agent}_sft" "$OUT/memory_rl" --metric f1
  done
  compare "$OUT/memory_rl" --metric f1
  compare "$OUT/memory_sft" "$OUT/memory_rl" --metric f1
  if wanted base; then compare "$OUT/memory_base" "$OUT/memory_rl" --metric f1; fi
}

"$recipe" "$@"
say done
