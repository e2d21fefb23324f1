"""A whole GRPO step of a recurrent memory agent on one GPU, against generate and an update row by row.

    python benchmarks/gpu/step.py
    python benchmarks/gpu/step.py --device cpu

Ours is the command that users run: 4 sections of 5,000 tokens, 16 attempts at each of 8 tasks, one update. The baseline
is a plain transformers model that makes the same number of tokens and trains the same sequences; one of its five turns
and some of its rows are measured and multiplied, since all of them are alike.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from device import parse
from shapes import build
from synthetic import make_folder, write_tasks

from recollect.config.compose import compose
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun

KEYS = ("time/rollout", "time/update", "rollout/tokens", "actor/logprob_drift", "memory/gpu_mb")
TURNS = 5  # four sections and the answer


def ours(args: argparse.Namespace) -> dict[str, float]:
    """The last step of a short run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder(args.shape, folder / "model")
        write_tasks(folder / "tasks.jsonl", args.tasks, 4 * args.chunk)
        limits = {"chunk_size": args.chunk, "max_memorization_length": args.new, "max_final_response_length": args.new}
        settings = [
            f"actor_rollout_ref.model.path={folder / 'model'}",
            f"data.train_files=[{folder / 'tasks.jsonl'}]",
            f"data.train_batch_size={args.tasks}",
            f"actor_rollout_ref.actor.ppo_mini_batch_size={args.tasks}",
            f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={args.budget}",
            f"actor_rollout_ref.rollout.n={args.samples}",
            "actor_rollout_ref.rollout.max_num_batched_tokens=16384",
            "actor_rollout_ref.actor.use_kl_loss=False",
            "agent.agent_type=recurrent",
            f"agent.reward_name={Path(__file__).with_name('synthetic.py')}:luck",
            f"trainer.total_training_steps={args.steps}",
            "trainer.save_freq=0",
            "trainer.val_before_train=False",
            f"trainer.default_local_dir={folder / 'run'}",
            *(f"recurrent.memory.config.{key}={value}" for key, value in limits.items()),
        ]
        work = TrainRun(compose(None, settings), Console(quiet=True))
        work.policy.sync(0)
        rows = [work.rl.step() for _ in range(args.steps)]
    for row in rows:
        print({k: round(row[k], 2) for k in KEYS if k in row}, flush=True)
    return rows[-1]


def theirs(args: argparse.Namespace) -> tuple[float, float]:
    """Seconds of (generation, update) by a plain transformers model, from a part of each."""
    model = build(args.shape, "sdpa")
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 1000, (args.tasks, args.chunk + args.new))
    prompts = torch.tensor(np.repeat(tokens, args.samples, 0)).cuda()

    def generate(count: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.inference_mode():
            limits = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": True, "top_k": 0, "top_p": 1.0}
            model.generate(prompts, attention_mask=torch.ones_like(prompts), pad_token_id=0, **limits)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    model.eval()
    generate(4)
    section = generate(args.new)
    prompts = prompts[:, : 2 * args.new]  # the answer turn reads the memory alone
    answer = generate(args.new)
    model.train()
    torch.cuda.empty_cache()

    def row(length: int) -> None:
        ids = torch.randint(0, 1000, (1, length + args.new), device="cuda")
        logits = model(ids, logits_to_keep=args.new + 1, use_cache=False).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits.float(), ids[0, -args.new :])
        loss.backward()

    def rows(length: int, count: int) -> float:
        row(length)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            row(length)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    every = args.tasks * args.samples
    sections, answers = rows(args.chunk + args.new, args.rows), rows(2 * args.new, args.rows)
    return (TURNS - 1) * section + answer, every * ((TURNS - 1) * sections + answers)


def main() -> None:
    """Both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="1.5B")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--chunk", type=int, default=5000)
    parser.add_argument("--new", type=int, default=256, help="tokens of each memory and of the answer")
    parser.add_argument("--budget", type=int, default=32768, help="tokens of a micro-batch")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rows", type=int, default=16, help="rows of the baseline's update that are measured")
    args = parse(parser, "grpo_step.py", "--our-threads", "0", "--threads", "2")
    row = ours(args)
    torch.cuda.empty_cache()
    generation, update = theirs(args)
    mine = row["time/rollout"], row["time/update"]
    print(
        f"{torch.cuda.get_device_name()}, {args.shape}: recollect {sum(mine):.1f} s (rollout {mine[0]:.1f}, update "
        f"{mine[1]:.1f}); transformers {generation + update:.1f} s (generate {generation:.1f}, rows {update:.1f}): "
        f"{(generation + update) / sum(mine):.1f}×"
    )


if __name__ == "__main__":
    main()
