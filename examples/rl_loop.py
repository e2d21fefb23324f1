"""The whole idea in one file: an agent with a memory, and GRPO, in plain torch and transformers.

A document is read section by section. After each section the model rewrites a short memory; at the end it answers from
the memory alone. Nothing tells it what to remember: every attempt is rewarded for its final answer only, and the n
attempts at one task are compared with each other. Only the tiny model, its made-up documents and the wording of its
prompts come from the package. Run it on a CPU:

    python examples/rl_loop.py
"""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from recollect.agents.memory.recurrent_prompts import answer_prompt, update_prompt
from recollect.models.tiny import TINY
from recollect.tasks.needle import NeedleShape, Task, make_task

FACTS = 6  # per section


@dataclass
class Turn:
    """One generation: what the model saw and what it wrote, as token ids."""

    prompt: list[int]
    response: list[int]


@dataclass
class Attempt:
    """One of the n attempts at a task."""

    task: Task
    memory: str = "none"
    turns: list[Turn] = field(default_factory=list)
    reward: float = 0.0
    advantage: float = 0.0


def sections(task: Task) -> list[str]:
    """The document in sections of FACTS sentences."""
    facts = re.findall(r"[^.]+\.", task.context)
    return ["".join(facts[i : i + FACTS]).strip() for i in range(0, len(facts), FACTS)]


@torch.no_grad()
def generate(model: Any, tokenizer: Any, prompts: list[str], max_new: int, sample: bool) -> list[Turn]:
    """One completion of each prompt, all side by side."""
    chats = [[{"role": "user", "content": p}] for p in prompts]
    texts = tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=False)
    batch = tokenizer(texts, add_special_tokens=False, padding=True, padding_side="left", return_tensors="pt")
    options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} if sample else {"do_sample": False}
    model.eval()
    out = model.generate(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=max_new, **options
    )
    turns = []
    width = batch["input_ids"].shape[1]
    for row, mask in zip(out.tolist(), batch["attention_mask"].tolist(), strict=True):
        response = row[width:]
        if tokenizer.eos_token_id in response:  # what follows the end is padding
            response = response[: response.index(tokenizer.eos_token_id) + 1]
        turns.append(Turn(row[width - sum(mask) : width], response))
    return turns


def rollout(model: Any, tokenizer: Any, tasks: list[Task], n: int, sample: bool = True) -> list[Attempt]:
    """n attempts at every task. All documents have the same number of sections, so all attempts go in step."""
    attempts = [Attempt(task) for task in tasks for _ in range(n)]
    documents = {task.id: sections(task) for task in tasks}
    decode = lambda turn: tokenizer.decode(turn.response, skip_special_tokens=True).strip()
    for i in range(len(documents[tasks[0].id])):
        prompts = [
            update_prompt("plain", "chunk_first", a.task.question, documents[a.task.id][i], a.memory) for a in attempts
        ]
        for attempt, turn in zip(attempts, generate(model, tokenizer, prompts, 12, sample), strict=True):
            attempt.turns.append(turn)
            attempt.memory = decode(turn) or "none"
    prompts = [answer_prompt("plain", a.task.question, a.memory) for a in attempts]
    for attempt, turn in zip(attempts, generate(model, tokenizer, prompts, 12, sample), strict=True):
        attempt.turns.append(turn)
        boxed = re.search(r"\\boxed\{(.*?)\}", decode(turn))
        attempt.reward = float(boxed is not None and boxed.group(1).strip() in attempt.task.answers)
    return attempts


def set_advantages(attempts: list[Attempt], n: int) -> None:
    """GRPO: an attempt is as good as it is better than the other attempts at the same task."""
    for start in range(0, len(attempts), n):
        group = attempts[start : start + n]
        rewards = torch.tensor([a.reward for a in group])
        for attempt, advantage in zip(group, (rewards - rewards.mean()) / (rewards.std() + 1e-6), strict=True):
            attempt.advantage = float(advantage)


def response_logprobs(model: Any, turns: list[Turn], pad: int) -> tuple[Tensor, Tensor]:
    """[turns, length] log-probability of every token given those before it, and a mask of the model's own tokens."""
    length = max(len(t.prompt) + len(t.response) for t in turns)
    ids = torch.full((len(turns), length), pad)
    own = torch.zeros(len(turns), length, dtype=torch.bool)
    for row, turn in enumerate(turns):
        end = len(turn.prompt) + len(turn.response)
        ids[row, :end] = torch.tensor(turn.prompt + turn.response)
        own[row, len(turn.prompt) : end] = True
    logits = model(input_ids=ids).logits[:, :-1]  # padding is on the right, where a causal model does not see it
    logprobs = torch.log_softmax(logits.float(), -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return logprobs, own[:, 1:]


def update(model: Any, optimizer: torch.optim.Optimizer, attempts: list[Attempt], pad: int, rows: int = 32) -> float:
    """One step on the tokens of all attempts; returns the gradient's norm.

    Each batch of attempts is used for a single update, so the policy that sampled is the policy that learns, its ratio
    is 1 and PPO's clip never binds: the loss is minus advantage times log-probability, averaged over all tokens.
    """
    total = sum(len(t.response) for a in attempts for t in a.turns)
    pairs = [(turn, a.advantage) for a in attempts for turn in a.turns if a.advantage != 0]
    pairs.sort(key=lambda pair: len(pair[0].prompt))  # less padding
    model.train()
    for start in range(0, len(pairs), rows):
        part = pairs[start : start + rows]
        logprobs, own = response_logprobs(model, [turn for turn, _ in part], pad)
        advantage = torch.tensor([a for _, a in part])[:, None]
        (-(advantage * logprobs * own).sum() / total).backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    optimizer.step()
    optimizer.zero_grad()
    return norm


def main() -> None:
    """Train, printing the mean reward of every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--tasks", type=int, default=8, help="tasks per step")
    parser.add_argument("--n", type=int, default=8, help="attempts at each task")
    parser.add_argument("--chunks", type=int, default=3, help="sections per document")
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)

    shape = NeedleShape(chunks=args.chunks, facts_per_chunk=FACTS, similar=0.15)
    unseen = [make_task(1, i, "held_out", shape) for i in range(64)]  # names and values that training never shows
    success = lambda: sum(a.reward for a in rollout(model, tokenizer, unseen, 1, sample=False)) / len(unseen)
    print(f"held-out success before: {success():.2f}", flush=True)
    for step in range(args.steps):
        start = time.monotonic()
        tasks = [make_task(args.seed, step * args.tasks + i, "train", shape) for i in range(args.tasks)]
        attempts = rollout(model, tokenizer, tasks, args.n)
        set_advantages(attempts, args.n)
        for group in optimizer.param_groups:
            group["lr"] = args.lr * (1 - step / args.steps)
        norm = update(model, optimizer, attempts, tokenizer.pad_token_id)
        reward = sum(a.reward for a in attempts) / len(attempts)
        seconds = time.monotonic() - start
        print(
            f"step {step + 1:2d}  reward {reward:.2f} {'#' * round(30 * reward):30}  grad {norm:.2f}  {seconds:.1f} s",
            flush=True,
        )
    print(f"held-out success after: {success():.2f}")


if __name__ == "__main__":
    main()
