"""One whole GRPO step, from prompts to new weights, against TRL's `GRPOTrainer` on a CPU.

The parts have their own benchmarks; this one asks what a user of either library waits for. Both sides start from the
same randomly initialised model of 3.3M parameters and do the same work: 8 prompts of 160 tokens, 8 samples of 64 tokens
each (never stopped early), a reward that costs nothing, group-normalised advantages, one clipped-surrogate AdamW update
without a reference policy, and new weights to sample from. TRL runs with each of its settings that may be fastest
(float32, bfloat16 autocast, bfloat16 weights; one and two threads), and its fastest counts.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import logging
import statistics
import tempfile
import time
import warnings
from typing import Any

import torch

from recollect.algos.control import KLController
from recollect.chat import Renderer
from recollect.config import Algorithm, Config, Optim
from recollect.engine import Engine
from recollect.models.attention import register
from recollect.models.device import pick_dtype, thread_counts
from recollect.models.shared_weights import see_same, twin
from recollect.models.tiny import build_tokenizer, tiny_config
from recollect.packing.batch import build_batch
from recollect.tasks.needle import NeedleShape, make_task
from recollect.training.learner.learner import PolicyTargets
from recollect.training.learner.local_learner import LocalLearner
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.rl.annotate import Annotations
from recollect.training.rl.estimate import estimate
from recollect.training.setup import TrainedPolicy
from recollect.types import Group, Sampling, Score, Task, Trajectory, Turn

PROMPTS, SAMPLES, TARGET = 8, 8, 5.0
LR = 1e-5
INSTALL = "TRL is not installed here, so there is nothing to compare with: run `make bench-trl`"


def make_model(attention: str) -> tuple[Any, Any]:
    """The embedded shape with random weights, the same every time, and its tokenizer."""
    from transformers import AutoModelForCausalLM

    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(tiny_config(tokenizer), attn_implementation=attention), tokenizer


def make_prompts(tokenizer: Any, length: int) -> list[str]:
    """Texts that are exactly so many tokens long."""
    texts = []
    for i in range(PROMPTS):
        text = str(make_task(0, i, "train", NeedleShape(chunks=1 + length // 24)).context)
        texts.append(tokenizer.decode(tokenizer.encode(text)[:length]))
        assert len(tokenizer.encode(texts[-1])) == length, "a prompt does not keep its length as text"
    return texts


def reward_of(ids: Any) -> float:
    """The share of even ids: free, and different for every sample."""
    return sum(1 for i in ids if i % 2 == 0) / len(ids)


# ---- recollect ----


def build_parts(asked: int) -> TrainedPolicy:
    """Model, learner and engine as training/setup.py makes them; 0 threads: as many as it would choose."""
    model, tokenizer = make_model(register())
    threads = thread_counts(asked, sum(p.numel() for p in model.parameters()))
    dtype = pick_dtype("auto", "cpu")
    half = dtype == torch.bfloat16
    trained = TrainedModel(model, Optim(lr=LR, weight_decay=0.0), 100, dtype, threads=threads[1], half=half)
    renderer = Renderer(tokenizer)
    engine = Engine(twin(model) if half else model, renderer.decode)
    see_same(model, engine.model)
    engine.threads = threads[0]
    learner = LocalLearner(Config(), trained)
    learner.lent = True  # the engine reads the learner's own weights
    parts = TrainedPolicy(renderer, learner, engine)
    parts.sync(0)
    return parts


async def collect(parts: TrainedPolicy, prompts: list[list[int]], new_tokens: int, step: int) -> list[Group]:
    """Sample and score all completions."""

    async def attempt(task: int, sample: int) -> Trajectory:
        key = f"{step}/{task}/{sample}"
        done = await parts.sampler.generate(prompts[task], Sampling(max_tokens=new_tokens, key=key))
        turn = Turn("agent", tuple(prompts[task]), done)
        return Trajectory(str(task), sample, [turn], done.text, score=Score(reward_of(done.ids)))

    made = await asyncio.gather(*(attempt(t, s) for t in range(PROMPTS) for s in range(SAMPLES)))
    return [Group(Task(str(t), ""), list(made[t * SAMPLES : (t + 1) * SAMPLES])) for t in range(PROMPTS)]


def our_step(parts: TrainedPolicy, prompts: list[list[int]], new_tokens: int, step: int) -> tuple[float, float]:
    """Seconds of rollout and of everything after it."""
    start = time.perf_counter()
    groups = asyncio.run(collect(parts, prompts, new_tokens, step))
    sampled = time.perf_counter()
    batch, trajectories = build_batch(groups)
    guess = estimate(Algorithm(), batch, trajectories, Annotations(), KLController(0.0))
    made = parts.learner.update(batch, PolicyTargets(guess.advantages))
    parts.sync(step + 1)
    assert batch.entries == PROMPTS * SAMPLES * new_tokens, "every sampled token is trained on"
    assert made["updates"] == 1, "one update was made"
    return sampled - start, time.perf_counter() - sampled


def ours(texts: list[str], new_tokens: int, steps: int, threads: int) -> float:
    """Median seconds of a step."""
    parts = build_parts(threads)
    label = f"recollect, {parts.sampler.threads} + {parts.learner.trained.threads} thr"
    prompts = [parts.renderer.encode(t) for t in texts]
    times = [our_step(parts, prompts, new_tokens, step) for step in range(1 + steps)][1:]
    rollout, update = (statistics.median(t[i] for t in times) for i in (0, 1))
    total = statistics.median(sum(t) for t in times)
    print(f"{label:<32} {total:>7.2f} s per step  (rollout {rollout:.2f}, update {update:.2f})", flush=True)
    return total


# ---- TRL ----


def trl_arguments(folder: str, new_tokens: int, steps: int, autocast: bool) -> Any:
    """TRL's settings for this work, nothing slowed down."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=PROMPTS * SAMPLES,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        num_generations=SAMPLES,
        num_iterations=1,
        max_completion_length=new_tokens,
        generation_kwargs={"min_new_tokens": new_tokens},
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=LR,
        lr_scheduler_type="constant",
        max_steps=1 + steps,
        use_cpu=True,
        bf16=autocast,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


def trl_trainer(texts: list[str], new_tokens: int, steps: int, kind: str, folder: str) -> tuple[Any, list[float]]:
    """A trainer, and the list that its training fills with the seconds of each step."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOTrainer

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.start = time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(time.perf_counter() - self.start)

    def reward(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
        assert all(len(ids) == new_tokens for ids in completion_ids), "a completion stopped early"
        return [reward_of(ids) for ids in completion_ids]

    seconds: list[float] = []
    model, tokenizer = make_model("sdpa")
    if kind == "bfloat16 weights":
        model = model.to(torch.bfloat16)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=trl_arguments(folder, new_tokens, steps, kind == "bfloat16 autocast"),
        train_dataset=Dataset.from_dict({"prompt": texts}),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, seconds


def trl(texts: list[str], new_tokens: int, steps: int, kind: str, threads: int) -> float:
    """Median seconds of a step."""
    label = f"TRL, {kind}, {threads} thr"
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        try:
            trainer, seconds = trl_trainer(texts, new_tokens, steps, kind, folder)
            trainer.train()
        except Exception as error:  # a setting that this TRL refuses is no reason to stop
            print(f"{label:<32} does not work: {type(error).__name__}: {str(error)[:120]}", flush=True)
            return float("inf")
    median = statistics.median(seconds[1:])
    print(f"{label:<32} {median:>7.2f} s per step", flush=True)
    return median


def main() -> None:
    """Print seconds per step of both sides and their ratio."""
    kinds = ["float32", "bfloat16 autocast", "bfloat16 weights"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt-tokens", type=int, default=160)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3, help="steps measured after one of warm-up")
    parser.add_argument("--trl-kinds", nargs="+", default=kinds, choices=kinds)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="thread counts TRL may pick from")
    parser.add_argument("--our-threads", type=int, nargs="+", default=[0, 1], help="the same for us; 0: as we choose")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    texts = make_prompts(build_tokenizer(), args.prompt_tokens)
    measure = lambda: min(ours(texts, args.new_tokens, args.steps, t) for t in args.our_threads)
    mine = measure()
    if importlib.util.find_spec("trl") is None or importlib.util.find_spec("datasets") is None:
        print(INSTALL)
        return
    theirs = min(trl(texts, args.new_tokens, args.steps, k, t) for k in args.trl_kinds for t in args.threads)
    mine = min(mine, measure())  # once before and once after, so that other load meets both sides
    ratio = theirs / mine
    print(f"recollect is {ratio:.2f}× as fast (≥ {TARGET:g}× {'ok' if ratio >= TARGET else 'MISSED'})")


if __name__ == "__main__":
    main()
