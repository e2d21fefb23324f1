"""Small models on real text: where a GPU waits for its host.

    python benchmarks/gpu/real.py --model smollm2-folder --data squad.json
    python benchmarks/gpu/real.py --work sft
    python benchmarks/gpu/real.py --device cpu

The workload is a recurrent memory agent over documents of four paragraphs: 32 tasks × 16 attempts, sections of at most
300 tokens, memories of at most 72. ``--model`` is a folder of SmolLM2-135M; without it, its shape has random weights.
``--data`` is a file in SQuAD's format; without it, the text is made up. A turn samples as many tokens as it is
told (19 in the mean, at most 72), so every version of the program samples the same numbers of tokens.

Each piece of work prints its wall time. A second, profiled pass prints the share of the time in which the GPU computes
(the union of its kernels), and the functions that the host's time goes to.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import math
import pstats
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from device import parse

from recollect.agents.memory.recurrent_prompts import answer_prompt, update_prompt
from recollect.config.compose import compose
from recollect.runtime.console import Console
from recollect.runtime.garbage import leaving_the_old
from recollect.training.train_run import TrainRun
from recollect.types import Sample, Task

HERE = Path(__file__).resolve()
WORDS = ["the", "of", "river", "stone", "under", "light", "seven", "council", "carried", "ancient", "between", "iron"]
MEAN, MOST = 19, 72
SHAPES = {"135M": (576, 30, 9, 3, 1536), "1.5B": (1536, 28, 12, 2, 8960)}  # width, layers, heads, key heads, MLP


# ---- what is trained ----


def turn_length(task: Task, sample: int, turn: int) -> int:
    """How many tokens a turn samples: the same for every version of the program."""
    drawn = random.Random(f"{task.id}/{sample}/{turn}").expovariate(1 / MEAN)
    return min(MOST, 1 + int(drawn))


async def reader(task: Task, session: Any, cfg: Any) -> str:
    """The recurrent agent with turns of known lengths."""
    limits, memory, sample = cfg.recurrent.memory.config, "", session.trajectory.sample
    for turn, chunk in enumerate(session.sections(task.context, limits.chunk_size, limits.split, limits.max_chunks)):
        prompt = update_prompt(limits.style, limits.layout, task.question, chunk.strip(), memory)
        memory = (await session.generate(prompt, role="memory", max_tokens=turn_length(task, sample, turn))).text
    prompt = answer_prompt(limits.style, task.question, memory)
    return str((await session.generate(prompt, role="qa", max_tokens=turn_length(task, sample, -1))).text)


async def one_turn(task: Task, session: Any, cfg: Any) -> str:
    """A question and 128 tokens."""
    return str((await session.generate(task.question, max_tokens=128)).text)


async def waiting_tools(task: Task, session: Any, cfg: Any) -> str:
    """Four turns in one conversation, with 50 ms between them."""
    import asyncio

    from recollect.agents.session import Conversation
    from recollect.types import Message

    talk, text = Conversation([Message("user", task.question)]), ""
    for turn in range(4):
        text = (await session.generate(talk, max_tokens=turn_length(task, session.trajectory.sample, turn))).text
        await asyncio.sleep(0.05)
        talk.add(Message("user", "The tool says: " + " ".join(WORDS)))
    return text


def luck(trajectory) -> float:  # type: ignore[no-untyped-def]
    """A reward that differs between attempts, so that every one of them has a gradient."""
    return (sum(trajectory.turns[-1].completion.ids) % 97) / 97


# ---- model and data ----


def model_folder(args: argparse.Namespace, folder: Path) -> Path:
    """The model that is trained: that of a folder, the embedded one on a CPU, else one with random weights."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

    from recollect.models.tiny import TINY, build_tokenizer

    given = args.model or (TINY if args.device == "cpu" else None)
    if given and (Path(given) / "model.safetensors").exists():
        return Path(given)
    tokenizer = AutoTokenizer.from_pretrained(given) if given else build_tokenizer()
    width, layers, heads, kv, mlp = args.size
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        intermediate_size=mlp,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def paragraphs(args: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(question, paragraph, answer) of a file, or made-up ones."""
    if args.data:
        found = [
            (qa["question"], p["context"], qa["answers"][0]["text"])
            for article in json.loads(Path(args.data).read_text())["data"]
            for p in article["paragraphs"]
            for qa in p["qas"]
        ]
        random.Random(0).shuffle(found)
        return found
    draw = random.Random(0)
    text = lambda count: " ".join(draw.choices(WORDS, k=count))
    return [(text(10), text(draw.randint(80, 160)), text(2)) for _ in range(400)]


def write_tasks(args: argparse.Namespace, file: Path, kind: str) -> Path:
    """Documents of four paragraphs with a question, or questions alone."""
    found = paragraphs(args)
    rows = []
    for i in range(args.tasks * 8):
        question, own, answer = found[i % len(found)]
        others = [found[(7 * i + 31 * j + 1) % len(found)][1] for j in range(3)]
        row = {"question": question, "answer": answer}
        rows.append(row if kind != "reader" else row | {"context": "\n\n".join([*others, own])})
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def make_run(args: argparse.Namespace, folder: Path, model: Path, agent: str, tasks: int, samples: int) -> TrainRun:
    """A run as users start it, with the workload's agent."""
    limits = {"chunk_size": 300, "max_memorization_length": MOST, "max_final_response_length": MOST}
    settings = [
        f"actor_rollout_ref.model.path={model}",
        f"data.train_files=[{write_tasks(args, folder / 'tasks.jsonl', agent)}]",
        f"data.train_batch_size={tasks}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={tasks}",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768",
        f"actor_rollout_ref.rollout.n={samples}",
        f"actor_rollout_ref.rollout.max_num_seqs={args.rows}",
        "actor_rollout_ref.rollout.max_num_batched_tokens=16384",
        "actor_rollout_ref.actor.use_kl_loss=False",
        "data.max_response_length=128",
        f"agent.agent_type={HERE}:{agent}",
        f"agent.reward_name={HERE}:luck",
        "agent.max_concurrency=4096",
        "trainer.total_training_steps=100",
        "trainer.save_freq=0",
        "trainer.val_before_train=False",
        f"trainer.default_local_dir={folder / 'run'}",
        *(f"recurrent.memory.config.{key}={value}" for key, value in limits.items()),
        *args.settings,
    ]
    work = TrainRun(compose(None, settings), Console(quiet=True))
    work.policy.sync(0)
    return work


# ---- measuring ----


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of some work, with all that it started on the GPU."""
    start = time.perf_counter()
    made = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, made


def busy_seconds(work: Callable[[], Any]) -> tuple[float, float, list[tuple[str, float, int]]]:
    """(seconds in which a kernel runs, wall seconds, the kernels that take longest) of some work under a profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        wall, _ = timed(work)
    spans, by_name = [], dict[str, tuple[float, int]]()
    for event in trace.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns() > 0:
            spans.append((event.start_ns(), event.start_ns() + event.duration_ns()))
            seconds, count = by_name.get(event.name(), (0.0, 0))
            by_name[event.name()] = seconds + event.duration_ns() / 1e9, count + 1
    busy, until = 0, 0
    for start, end in sorted(spans):
        busy += max(0, end - max(start, until))
        until = max(until, end)
    slowest = sorted(((n, s, c) for n, (s, c) in by_name.items()), key=lambda x: -x[1])
    return busy / 1e9, wall, slowest


def host_profile(work: Callable[[], Any], count: int) -> str:
    """Where the host's time goes, by cProfile."""
    profile = cProfile.Profile()
    profile.runcall(work)
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(count)
    return "\n".join(line for line in out.getvalue().splitlines() if line.strip())


def report(args: argparse.Namespace, name: str, work: Callable[[], Any]) -> None:
    """Busy share and kernels, then the host's functions."""
    if args.profile and args.device == "cuda":
        busy, wall, slowest = busy_seconds(work)
        print(f"{name}: GPU busy {busy:.2f} of {wall:.2f} s under its profiler ({100 * busy / wall:.0f} %)")
        for kernel, seconds, count in slowest[: args.profile]:
            print(f"    {seconds:7.3f} s {count:7d}×  {kernel[:110]}")
    if args.profile:
        print(host_profile(work, args.profile), flush=True)


# ---- pieces of work ----


def grpo(args: argparse.Namespace, agent: str, tasks: int, samples: int) -> None:
    """Whole steps: the first, which compiles, then the fastest of the others."""
    with tempfile.TemporaryDirectory() as name:
        folder = model_folder(args, Path(name) / "model")
        first, work = timed(lambda: make_run(args, Path(name), folder, agent, tasks, samples))
        step = work.rl.step
        started, row = timed(step)
        parts = f"rollout {row['time/rollout']:.1f}, update {row['time/update']:.1f}"
        rows = [timed(step) for _ in range(args.steps)]
        wall, row = min(rows, key=lambda r: r[0])
        tokens, rollout = row["rollout/tokens"], min(r["time/rollout"] for _, r in rows)
        print(
            f"{agent}: start {first:.1f} s, first step {started:.1f} s ({parts}); step {wall:.2f} s, "
            f"rollout {rollout:.2f} s ({tokens:.0f} tokens, {tokens / rollout:.0f}/s), "
            f"update {min(r['time/update'] for _, r in rows):.2f} s"
        )
        for key in sorted(k for k in row if k.startswith(("time/", "gpu/"))):
            print(f"    {key} {row[key]:.3f}")
        print("    rollouts " + " ".join(f"{r['time/rollout']:.2f}" for _, r in rows), flush=True)
        print("    updates " + " ".join(f"{r['time/update']:.2f}" for _, r in rows), flush=True)
        gather = work.rl.gatherer.gather
        report(args, f"{agent} rollout", lambda: gather(50, 3))
        if agent == "reader":
            report(args, f"{agent} step", step)
        if args.peer:
            peer(args, Path(name), agent, tasks * samples, wall)


def sft(args: argparse.Namespace) -> None:
    """Updates on 32 sequences of about 290 tokens."""
    with tempfile.TemporaryDirectory() as name:
        work = make_run(args, Path(name), model_folder(args, Path(name) / "model"), "one_turn", 8, 2)
        encode, draw = work.policy.renderer.encode, np.random.default_rng(0)
        texts = [encode(f"{q} {p}") * 4 for q, p, _ in paragraphs(args)]
        rows = [np.array(t[: int(draw.integers(200, 380))]) for t in texts]
        samples = [
            Sample(ids, np.arange(len(ids)) >= len(ids) // 2, np.zeros(len(ids), np.float32), 0, 0) for ids in rows
        ]
        batches = [samples[i : i + 32] for i in range(0, len(samples) - 31, 32)]
        learner = work.policy.learner
        index = iter(range(1 << 30))
        update = lambda: learner.imitate(batches[next(index) % len(batches)])
        first, _ = timed(update)
        walls = [timed(update)[0] for _ in range(20)]
        tokens = np.mean([sum(len(s.ids) for s in b) for b in batches])
        best = float(np.median(walls[5:]))
        print(f"sft: first update {first:.1f} s, then {best * 1e3:.0f} ms: {tokens / best:.0f} tokens/s")
        print("    updates in ms: " + " ".join(f"{w * 1e3:.0f}" for w in walls), flush=True)
        report(args, "sft, 5 updates", lambda: [update() for _ in range(5)])
        if args.peer:
            trainer(args, Path(name), rows, float(tokens) / best)


def trainer(args: argparse.Namespace, folder: Path, rows: list[np.ndarray], ours: float) -> None:
    """The library's own Trainer: padded rows, and rows packed to one length."""
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    flat = np.concatenate(rows)
    pad = lambda r: {
        "input_ids": np.pad(r, (0, 380 - len(r))),
        "attention_mask": np.arange(380) < len(r),
        "labels": np.pad(r, (0, 380 - len(r)), constant_values=-100),
    }
    packed = [{"input_ids": x, "labels": x} for x in flat[: len(flat) // 1024 * 1024].reshape(-1, 1024)]
    collate = lambda items: {k: torch.tensor(np.stack([i[k] for i in items])) for k in items[0]}
    best = 0.0
    for data, size, real in (([pad(r) for r in rows], 32, float(np.mean([len(r) for r in rows]))), (packed, 9, 1024.0)):
        model = AutoModelForCausalLM.from_pretrained(model_folder(args, folder / "model"), dtype=torch.float32)
        settings = TrainingArguments(
            str(folder / "trainer"), max_steps=30, per_device_train_batch_size=size, bf16=args.device == "cuda",
            learning_rate=1e-5, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
            optim="adamw_torch_fused", dataloader_pin_memory=False,
        )  # fmt: skip
        trained = Trainer(model, settings, collate, data * 20)
        seconds, _ = timed(trained.train)
        best = max(best, 30 * size * real / seconds)
        print(f"    the library's Trainer, {size} rows: {30 * size * real / seconds:.0f} tokens/s")
    print(f"    {ours / best:.1f}× the Trainer", flush=True)


def peer(args: argparse.Namespace, folder: Path, agent: str, attempts: int, ours: float) -> None:
    """`generate` of the same turns in batches, and an update row by row (some rows, multiplied)."""
    from transformers import AutoModelForCausalLM

    turns, prompt, new = {"reader": (5, 380, MEAN), "one_turn": (1, 40, 128), "waiting_tools": (4, 120, MEAN)}[agent]
    longest = MOST if agent == "reader" else new  # a batch waits for its longest row
    path = model_folder(args, folder / "model")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, attn_implementation="sdpa").to(args.device)
    ids = torch.randint(5, min(1000, model.config.vocab_size), (min(attempts, 512), prompt), device=args.device)
    limits = {"max_new_tokens": longest, "min_new_tokens": longest, "do_sample": True, "top_k": 0, "pad_token_id": 0}
    generate = lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **limits)
    model.eval()
    with torch.inference_mode():
        generate()
        sampled = timed(generate)[0] * turns * math.ceil(attempts / 512)
    model.train()

    def row() -> None:
        x = ids[:1]
        logits = model(x, logits_to_keep=new + 1, use_cache=False).logits[0, :-1]
        torch.nn.functional.cross_entropy(logits.float(), x[0, -len(logits) :]).backward()

    row()
    updated = timed(lambda: [row() for _ in range(32)])[0] / 32 * attempts * turns
    print(f"    generate {sampled:.1f} s + rows {updated:.1f} s: {(sampled + updated) / ours:.1f}×", flush=True)


def lengths(args: argparse.Namespace) -> None:
    """Updates of a 1.5B shape on sequences that all have other lengths, each step anew."""
    from shapes import matmul_peak
    from update import make_learner

    from recollect.packing.batch import Batch

    learner, peak = make_learner("1.5B"), matmul_peak()
    draw = np.random.default_rng(0)
    parameters = sum(p.numel() for p in learner.model.parameters())
    walls = []
    for _ in range(8):
        samples, group = [], 0
        while sum(len(s.ids) for s in samples) < 60000:
            prefix = draw.integers(5, 1000, int(draw.integers(200, 3000)))
            for _ in range(4):
                ids = np.concatenate([prefix, draw.integers(5, 1000, int(draw.integers(20, 600)))])
                mask = np.arange(len(ids)) >= len(prefix)
                samples.append(Sample(ids, mask, np.zeros(len(ids), np.float32), group, 0))
            group += 1
        batch = Batch.of(samples)
        packs = batch.packs(range(len(samples)), 32768)
        nodes = sum(len(p.tokens) for p in packs)
        wall, _ = timed(lambda: learner.backward(packs, lambda p, logp, entropy: -logp.sum() / 1000))  # noqa: B023
        learner.optimizer.zero_grad()
        walls.append((wall, 6 * parameters * nodes / wall / peak))
    print("lengths, 1.5B: " + ", ".join(f"{w:.2f} s ({100 * s:.0f} %)" for w, s in walls), flush=True)


def main() -> None:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", default="reader,sft,one_turn,waiting_tools", help="by commas; also lengths")
    parser.add_argument("--model", help="folder of the model, or of a tokenizer alone")
    parser.add_argument("--data", help="a file in SQuAD's format")
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--rows", type=int, default=512, help="max_num_seqs")
    parser.add_argument("--shape", choices=SHAPES, default="135M", help="of random weights")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--profile", type=int, default=12, help="kernels and functions to print; 0: no profile")
    parser.add_argument("--peer", action="store_true", help="also by transformers alone")
    parser.add_argument("settings", nargs="*", help="key=value, as on the command line")
    args = parse(parser)
    args.size = SHAPES[args.shape]
    if args.device == "cpu":
        args.tasks, args.samples = min(8, args.tasks), min(4, args.samples)
    with leaving_the_old():  # as every run does
        work(args)


def work(args: argparse.Namespace) -> None:
    """One piece after the other."""
    for name in args.work.split(","):
        if name == "sft":
            sft(args)
        elif name == "lengths":
            lengths(args)
        else:
            shapes = {"one_turn": (2 * args.tasks, args.samples), "waiting_tools": (args.tasks // 2, args.samples)}
            grpo(args, name, *shapes.get(name, (args.tasks, args.samples)))


if __name__ == "__main__":
    main()
