"""An agent that calls your function: a model made from nothing learns which sign a word means.

python examples/tool_agent.py            # some minutes on a CPU
python examples/tool_agent.py --small    # two steps, to see that it works
"""

import sys

import recollect

SMALL = {
    "sft.steps": 2,
    "sft.batch_size": 4,
    "data.train_batch_size": 2,
    "actor_rollout_ref.rollout.n": 2,
    "trainer.total_training_steps": 2,
    "data.val_max_samples": 4,
}
SIGNS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


@recollect.tool
def calculator(expression: str) -> str:
    """Compute with two whole numbers.

    Args:
        expression: Such as 12*34; the signs are +, - and *.
    """
    for sign, compute in SIGNS.items():
        left, found, right = expression.partition(sign)
        if found and left.strip().isdigit() and right.strip().isdigit():
            return str(compute(int(left), int(right)))
    raise ValueError(f"cannot compute {expression}")  # the model reads this, and may try again


def main(small: bool) -> recollect.Result:
    """Imitate a sloppy agent first, which has the form of calls right; then reinforce."""
    settings = SMALL if small else {}
    return recollect.train("arithmetic", tools=[calculator], settings=settings, out="runs/examples/tool_agent")


if __name__ == "__main__":
    result = main("--small" in sys.argv)
    print("held-out success:", result.report.held_out)
    for turn in result.run.trajectories()[-1]["turns"]:
        print(turn["text"])
