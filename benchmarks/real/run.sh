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
# ITEMS  test items of each evaluation (default all; 200 with size=cpu)
# EMBEDDING  of squad_search: a sentence-transformers folder, for dense search beside BM25
set -euo pipefail
recipe=${1:?name a recipe: squad_memory, gsm8k_tools, squad_search or squad_stages}
shift
: "${DATA:?}" "${MODEL:?}" "${OUT:?}"
python=${PYTHON:-python3}
short=()
if [[ " $* " == *" size=cpu "* ]]; then # short documents and problems, few test items
  SIZES=${SIZES:-2} TRAIN_SIZES=${TRAIN_SIZES:-2} ITEMS=${ITEMS:-200} short=(--calculations 2)
fi
sizes=${SIZES:-4 16 64}              # paragraphs of test documents
train_sizes=${TRAIN_SIZES:-4 8}      # of training documents
items=data.val_max_samples=${ITEMS:--1}
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
  squad squad_train train $train_sizes
  squad squad_tune tune "${train_sizes%% *}"
  # shellcheck disable=SC2086
  squad squad_test test $sizes
  local run=$OUT/squad_memory test=(data.val_files="$OUT/squad_test.jsonl" "$items")
  say train
  recollect train squad_memory actor_rollout_ref.model.path="$MODEL" data.train_files="$OUT/squad_train.jsonl" \
    data.val_files="$OUT/squad_tune.jsonl" trainer.default_local_dir="$run" "$@"
  measure memory_rl "$run" "${test[@]}"
  measure memory_sft "$run/checkpoints/step-0" "${test[@]}"
  if wanted base; then measure memory_base "$MODEL" squad_memory "$@" "${test[@]}" --baseline concat --baseline rag; fi
  for agent in concat rag; do
    wanted $agent || continue
    say "SFT of $agent"
    recollect sft squad_memory actor_rollout_ref.model.path="$MODEL" data.train_files="$OUT/squad_train.jsonl" \
      agent.agent_type=$agent trainer.default_local_dir="$OUT/$agent" "$@"
    measure "${agent}_sft" "$OUT/$agent" "${test[@]}"
    compare "$OUT/${agent}_sft" "$OUT/memory_rl" --metric f1
  done
  compare "$OUT/memory_rl" --metric f1
  compare "$OUT/memory_sft" "$OUT/memory_rl" --metric f1
  if wanted base; then compare "$OUT/memory_base" "$OUT/memory_rl" --metric f1; fi
}

gsm8k() { # gsm8k SPLIT: a file of problems
  [[ -e $OUT/gsm8k_$1.jsonl ]] || recollect data gsm8k "$DATA/gsm8k_train.jsonl" "$OUT/gsm8k_$1.jsonl" --split "$1" \
    --shares 80,6,14 "${short[@]}"
}

gsm8k_tools() {
  gsm8k train
  gsm8k tune
  gsm8k test
  local run=$OUT/gsm8k_tools all=$items test=data.val_files=$OUT/gsm8k_test.jsonl
  local files=(data.train_files="$OUT/gsm8k_train.jsonl" data.val_files="$OUT/gsm8k_tune.jsonl")
  say train
  recollect train gsm8k_tools actor_rollout_ref.model.path="$MODEL" "${files[@]}" trainer.default_local_dir="$run" "$@"
  measure gsm8k_rl "$run" "$test" "$all"
  measure gsm8k_sft "$run/checkpoints/step-0" "$test" "$all"
  compare "$OUT/gsm8k_sft" "$OUT/gsm8k_rl"
  if wanted base; then
    measure gsm8k_base "$MODEL" gsm8k_tools "$@" "$test" "$all"
    compare "$OUT/gsm8k_base" "$OUT/gsm8k_rl"
  fi
  if wanted none; then
    say "the same without tools"
    recollect train gsm8k_tools tools=none actor_rollout_ref.model.path="$MODEL" "${files[@]}" \
      trainer.default_local_dir="$OUT/gsm8k_none" "$@"
    measure gsm8k_none "$OUT/gsm8k_none" "$test" "$all"
    compare "$OUT/gsm8k_none" "$OUT/gsm8k_rl"
  fi
}

squad_search() {
  squad search_train train
  squad search_tune tune
  squad search_test test
  [[ -e $OUT/corpus.jsonl ]] || recollect data passages "$DATA/xquad_en_train.json" "$DATA/nq_qed.json" "$OUT/corpus.jsonl"
  local all=$items test=data.val_files=$OUT/search_test.jsonl methods=(bm25)
  local base=(actor_rollout_ref.model.path="$MODEL" search.corpus="$OUT/corpus.jsonl" search.cache_dir="$OUT/cache")
  base+=(data.train_files="$OUT/search_train.jsonl" data.val_files="$OUT/search_tune.jsonl")
  if [[ -n ${EMBEDDING:-} ]]; then methods+=(dense); fi
  for method in "${methods[@]}"; do
    local how=(search.method="$method") run=$OUT/squad_search_$method
    if [[ $method == dense ]]; then how+=(search.embedding_model="$EMBEDDING"); fi
    "$python" benchmarks/real/recall.py "$OUT/search_test.jsonl" "$OUT/corpus.jsonl" "$method" "${EMBEDDING:-}" \
      | tee -a "$OUT/$recipe.txt"
    say "train, $method"
    recollect train squad_search "${base[@]}" "${how[@]}" trainer.default_local_dir="$run" "$@"
    measure "search_rl_$method" "$run" "$test" "$all"
    measure "search_sft_$method" "$run/checkpoints/step-0" "$test" "$all"
    compare "$OUT/search_sft_$method" "$OUT/search_rl_$method" --metric f1
    if wanted once; then
      say "one fixed search, $method"
      recollect sft squad_search "${base[@]}" "${how[@]}" agent.agent_type=search_once \
        trainer.default_local_dir="$OUT/once_$method" "$@"
      measure "once_$method" "$OUT/once_$method" "$test" "$all"
      compare "$OUT/once_$method" "$OUT/search_rl_$method" --metric f1
    fi
  done
  if wanted base; then
    measure search_base "$MODEL" squad_search "${base[@]}" "$@" "$test" "$all"
    compare "$OUT/search_base" "$OUT/search_rl_bm25" --metric f1
  fi
  if wanted closed; then
    say "closed book"
    recollect sft squad_search "${base[@]}" agent.agent_type=chat agent.tools=[] agent.system_prompt="Answer the question." \
      trainer.default_local_dir="$OUT/closed" "$@"
    measure closed "$OUT/closed" "$test" "$all"
    compare "$OUT/closed" "$OUT/search_rl_bm25" --metric f1
  fi
}

squad_stages() {
  local size=${train_sizes%% *}
  squad stages_train train "$size"
  squad stages_tune tune "$size"
  squad stages_test test "$size"
  local root=$OUT/squad_stages test=(data.val_files="$OUT/stages_test.jsonl" "$items")
  say stages
  recollect stages squad_stages actor_rollout_ref.model.path="$MODEL" data.train_files="$OUT/stages_train.jsonl" \
    data.val_files="$OUT/stages_tune.jsonl" trainer.default_local_dir="$root" "$@"
  measure stages_start "$root/base" "${test[@]}"
  measure stages_1 "${test[@]}" --role memory="$root/1-memory" --role qa="$root/base"
  measure stages_2 "${test[@]}" --role memory="$root/1-memory" --role qa="$root/2-qa"
  measure stages_end_to_end "$root/end_to_end" "${test[@]}"
  compare "$OUT/stages_start" "$OUT/stages_1" --metric f1
  compare "$OUT/stages_1" "$OUT/stages_2" --metric f1
  compare "$OUT/stages_start" "$OUT/stages_end_to_end" --metric f1
  compare "$OUT/stages_2" "$OUT/stages_end_to_end" --metric f1
}

case $recipe in
  squad_memory | gsm8k_tools | squad_search | squad_stages) "$recipe" "$@" ;;
  *) echo "no recipe $recipe: squad_memory, gsm8k_tools, squad_search or squad_stages" >&2 && exit 2 ;;
esac
say done
