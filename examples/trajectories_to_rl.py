"""From trajectories to SFT to RL: imitate a run's own good attempts, then reinforce from there.

python examples/trajectories_to_rl.py            # some minutes on a CPU
python examples/trajectories_to_rl.py --small    # a step of each, to see that it works
"""

import sys

import recollect

SHORT = {"trainer.total_training_steps": 4, "evaluation.lengths": [1], "evaluation.tasks": [64]}
SMALL = {
    "trainer.total_training_steps": 1,
    "data.train_batch_size": 2,
    "actor_rollout_ref.rollout.n": 4,
    "evaluation.lengths": [1],
    "evaluation.tasks": [4],
}


def main(small: bool) -> tuple[recollect.Result, recollect.Result, recollect.Result]:
    """A short RL run, SFT on what went well in it, and RL again."""
    settings = SMALL if small else SHORT
    first = recollect.train("needle", settings=settings, out="runs/examples/first")
    good = [row for row in first.run.trajectories() if row["reward"] == 1]
    print(f"{len(good)} of {len(first.run.trajectories())} attempts were right")
    imitation = {"sft.min_reward": 0.0 if small else 1.0, "sft.steps": 1 if small else 40}
    imitated = recollect.sft(model="tiny", data=first.run.path, settings=imitation, out="runs/examples/imitated")
    second = recollect.train("needle", model=imitated.run.path, settings=settings, out="runs/examples/second")
    return first, imitated, second


if __name__ == "__main__":
    before, _, after = main("--small" in sys.argv)
    print("held-out success, RL alone:", before.report.held_out)
    print("held-out success, RL, SFT, RL:", after.report.held_out)
