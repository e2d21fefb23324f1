"""A memory agent on documents of yours: rows with a question, a document and its answer; then ask the trained policy.

python examples/memory_on_documents.py            # some minutes on a CPU
python examples/memory_on_documents.py --small    # two steps, to see that it works
"""

import random
import sys
from collections.abc import Iterator

import recollect

NAMES = [a + b for a in ("mi", "ko", "sa", "ta", "ni", "pe") for b in ("ra", "lu", "vo", "re", "mu")]
SMALL = {"data.train_batch_size": 2, "actor_rollout_ref.rollout.n": 2, "trainer.total_training_steps": 2}


def documents(count: int, seed: int) -> Iterator[dict[str, str]]:
    """Stand-ins for your documents: inventories of 24 lines, with a question about one of them."""
    draw = random.Random(seed)
    for number in range(count):
        held = {name: str(draw.randrange(100, 1000)) for name in draw.sample(NAMES, 24)}
        name = draw.choice(list(held))
        text = " ".join(f"{other} holds {value}." for other, value in held.items())
        yield {"id": f"{seed}-{number}", "question": f"What does {name} hold?", "context": text, "answer": held[name]}


def main(small: bool) -> recollect.Result:
    """Train on 512 documents, and validate on 32 others."""
    settings = {"trainer.total_training_steps": 16, "trainer.test_freq": 8}
    return recollect.train(
        "needle",
        tasks=documents(512, seed=0),
        held_out=documents(4 if small else 32, seed=1),
        settings=settings | (SMALL if small else {}),
        out="runs/examples/documents",
    )


if __name__ == "__main__":
    result = main("--small" in sys.argv)
    print("held-out success:", result.report.held_out)
    with result.policy as policy:
        notes = "tare holds 118. mira holds 472. savo holds 903."
        print("answer:", policy.ask(notes, "What does mira hold?"))
