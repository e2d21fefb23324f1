"""A reward of your own: part of the reward for a part of the digits.

python examples/own_reward.py            # some minutes on a CPU
python examples/own_reward.py --small    # two steps, to see that it works
"""

import sys

import recollect
from recollect.rewards.text import last_boxed

SMALL = {"data.train_batch_size": 2, "actor_rollout_ref.rollout.n": 2, "trainer.total_training_steps": 2}


def digits(answer: str, golden_answers: list[str]) -> dict[str, float]:
    """The share of digits that are right. ``exact`` is logged beside it, as ``reward/part/exact``."""
    said, gold = last_boxed(answer) or "", golden_answers[0]
    right = sum(a == b for a, b in zip(said, gold, strict=False))
    return {"reward": right / max(len(said), len(gold)), "exact": float(said == gold)}


def main(small: bool) -> recollect.Result:
    """Train the embedded model with it."""
    settings = {"trainer.total_training_steps": 20, "evaluation.lengths": [1], "evaluation.tasks": [64]}
    more = SMALL | {"evaluation.tasks": [4]} if small else {}
    return recollect.train("needle", reward=digits, settings=settings | more, out="runs/examples/own_reward")


if __name__ == "__main__":
    result = main("--small" in sys.argv)
    for row in result.run.metrics():
        if "reward/mean" in row:
            print(f"step {row['step']:3}  reward {row['reward/mean']:.3f}  exact {row['reward/part/exact']:.3f}")
