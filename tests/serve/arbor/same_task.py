"""The task of dspy_program.py by `recollect.train`, for comparison: the same examples, steps and settings.

    python same_task.py FOLDER STEPS

The last line that it prints is JSON: held-out scores before and after.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import recollect

NAMES = ("mira", "dehi", "tola", "rani", "sumo", "kelo", "vani", "pora", "lume", "sita")


async def answer_it(task: Any, session: Any, cfg: Any) -> str:
    """One turn, in the words of the DSPy program."""
    prompt = f"Question: {task.question}\nMemory: {task.fields['memory']}\nAnswer:"
    return str((await session.generate(prompt, max_tokens=16)).text)


def exact(answer: str, golden_answers: list[str]) -> float:
    """The number in a box and nothing else."""
    return float(answer.strip() == f"\\boxed{{ {golden_answers[0]}}}")


def example(rng: random.Random, number: int) -> dict[str, Any]:
    """A question about one of four facts, drawn as the DSPy program draws it."""
    names = rng.sample(NAMES, 4)
    values = [rng.randint(100, 999) for _ in names]
    memory = " ".join(f"{name} holds {value}" for name, value in zip(names, values, strict=True))
    question = f"What does {names[0]} hold?"
    return {"id": f"t{number}", "question": question, "answer": str(values[0]), "memory": memory}


def main(folder: str, steps: int) -> None:
    rng = random.Random(0)
    train, held_out = ([example(rng, i) for i in range(count)] for count in (64, 60))
    actor = "actor_rollout_ref.actor"
    settings = {
        f"{actor}.optim.lr": 3e-4,
        f"{actor}.optim.lr_scheduler_type": "constant",
        f"{actor}.ppo_mini_batch_size": 4,
        "actor_rollout_ref.rollout.n": 8,
        "data.train_batch_size": 4,
        "trainer.total_training_steps": steps,
        "trainer.test_freq": 0,
        "trainer.device": "cpu",
        "data.max_response_length": 16,
    }
    recollect.train(
        agent=answer_it, reward=exact, tasks=train, held_out=held_out, settings=settings, out=folder, quiet=True
    )
    rows = [row for row in recollect.Run(folder).metrics() if any(key.startswith("val/") for key in row)]
    means = [next(value for key, value in row.items() if key.endswith("/accuracy")) for row in (rows[0], rows[-1])]
    print(json.dumps({"before": 100 * means[0], "after": 100 * means[1]}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
