"""Measure a policy beside one without a memory, and ask it about a text. Nothing is trained.

python examples/evaluate_and_ask.py RUN    # a run, a checkpoint, a model folder; default: the embedded model
python examples/evaluate_and_ask.py --small
"""

import sys

import recollect

NOTES = "tare holds 118. mira holds 472. savo holds 903."


def main(path: str, small: bool) -> recollect.Report:
    """Success on made-up held-out documents, with its 95 % interval; then a question about a text."""
    settings = {"evaluation.lengths": [1, 4], "evaluation.tasks": [4, 2] if small else [64, 32]}
    report = recollect.evaluate(path, settings=settings, baselines=["concat"], out="runs/examples/evaluation")
    with recollect.load(path) as policy:
        print("answer:", policy.ask(NOTES, "What does mira hold?"))
    return report


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--small"]
    print(main(given[0] if given else "tiny", "--small" in sys.argv).accuracy)
