"""Tasks from a table, and metrics to plot: what pandas, pyarrow and Hugging Face's datasets have in common.

python examples/tables.py            # a minute or two on a CPU
python examples/tables.py --small    # two steps, to see that it works
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pyarrow as pa

import recollect

SMALL = {"data.train_batch_size": 2, "actor_rollout_ref.rollout.n": 2, "trainer.total_training_steps": 2}


def table() -> pa.Table:
    """64 tasks. A pandas frame or a ``datasets.Dataset`` with these columns can be given in its place."""
    values = [str(100 + 7 * i) for i in range(64)]
    return pa.table(
        {
            "question": ["What does mira hold?"] * 64,
            "context": [f"kolu holds {i}{i % 7}1. mira holds {value}." for i, value in enumerate(values, 1)],
            "answer": values,
        }
    )


def main(small: bool) -> recollect.Result:
    """Train on the table."""
    settings = {"trainer.total_training_steps": 8, "evaluation.lengths": [1], "evaluation.tasks": [16]}
    more = SMALL | {"evaluation.tasks": [4]} if small else {}
    return recollect.train("needle", tasks=table(), settings=settings | more, out="runs/examples/tables")


def plot(result: recollect.Result, file: Path) -> None:
    """The reward of each step. ``metrics().frame()`` is a pandas frame, where pandas is installed."""
    rows = [row for row in result.run.metrics() if "reward/mean" in row]
    plt.plot([row["step"] for row in rows], [row["reward/mean"] for row in rows], marker="o")
    plt.xlabel("step")
    plt.ylabel("mean reward")
    plt.savefig(file)


if __name__ == "__main__":
    done = main("--small" in sys.argv)
    plot(done, done.run.path / "reward.png")
    print("plot:", done.run.path / "reward.png")
