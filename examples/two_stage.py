"""Two roles trained in turns: the memory against a frozen answerer, then the answerer against a frozen memory.

python examples/two_stage.py            # some minutes on a CPU
python examples/two_stage.py --small    # a step of each, to see that it works
"""

import sys
from pathlib import Path

import recollect

PLAN = """
trainer: {project_name: examples, experiment_name: two_stage}
actor_rollout_ref:
  model: {path: tiny}
  actor: {optim: {lr: 6.0e-4, weight_decay: 0.0, lr_warmup_steps: 2}}
  rollout: {n: 8}
data: {train_batch_size: 24, max_response_length: 16}
recurrent: {memory: {config: {chunk_size: 48, max_prompt_length: 32, max_memorization_length: 12,
                              max_final_response_length: 12, split: sentence, style: plain}}}
evaluation: {lengths: [1], tasks: [64]}
stages:
  - {name: memory, role: memory, steps: STEPS}
  - {name: qa, role: qa, steps: STEPS}
"""
SMALL = {"data.train_batch_size": 2, "actor_rollout_ref.rollout.n": 2, "evaluation.tasks": [4]}


def main(small: bool) -> recollect.Report:
    """Write the plan as a recipe, and follow it."""
    recipe = Path("runs/examples/two_stage.yaml")
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(PLAN.replace("STEPS", "1" if small else "10"))
    return recollect.stages(recipe, settings=SMALL if small else {}, out="runs/examples/two_stage")


if __name__ == "__main__":
    report = main("--small" in sys.argv)
    print("before:", report.base)
    for stage in report.stages:
        print(f"after {stage['name']}: {stage['held_out']:.3f} ({stage['low']:.3f} to {stage['high']:.3f})")
