"""An update on 8 attempts that were shown the same 8 screenshots: as a prefix tree against row by row.

The agent `gui` works a made-up screen of check boxes. All attempts tick the same boxes but for the last one, so they
share 8 screenshots and 7 actions. The update is made both ways, with a frozen tower, of which what it makes of an image
is kept, and with one that trains. The gradients have to agree; that is checked in float32 before anything is timed.
"""

from __future__ import annotations

import argparse
import asyncio

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar
from tree_update import STILL, best_seconds, check_gradients, row_by_row

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.compose import compose
from recollect.gui.action_syntax import SYNTAXES
from recollect.gui.environment import GuiAction
from recollect.gui.on_screen import OnScreen
from recollect.gui.screen import Goal, Screen, Widget
from recollect.models.vision import sight_of
from recollect.packing.batch import Batch
from recollect.packing.samples import trajectory_samples
from recollect.policies.scripted import Expert
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.setup import build
from recollect.types import Group, Sampling, Task, Trajectory

TARGET = 5.0
SCREENSHOTS, ATTEMPTS = 8, 8
LABELS = [a + b for a in "ACEHK" for b in "LOTXZ"]


def task(cells: int) -> Task:
    """A screen of so many cells a side, with boxes and a goal that no tick reaches."""
    boxes = [Widget("box", LABELS[i], i % cells, i // cells, (200, 220, 240)) for i in range(SCREENSHOTS + ATTEMPTS)]
    screen = Screen(cells, cells, boxes, Goal(None, ""))  # nothing is to change
    return Task("boxes", "Tick all", source="screen", fields={"screen": screen.row()})


def ticks_boxes(renderer: Renderer) -> Expert:
    """A player that ticks one box after another, and at the end a box of its own."""
    attempts: dict[int, int] = {}

    def said(task: Task, trajectory: Trajectory) -> str:
        world, turn = trajectory.world, len(trajectory.turns)
        assert isinstance(world, OnScreen)
        assert isinstance(world.environment, Screen)
        number = attempts.setdefault(id(trajectory), len(attempts))
        box = world.environment.widgets[turn if turn < SCREENSHOTS - 1 else SCREENSHOTS + number]
        return SYNTAXES[world.syntax].write(GuiAction("click", world.environment.centre(box)), world.frame)

    return Expert(renderer, said)


def collect(cfg: Config, renderer: Renderer, cells: int) -> Batch:
    """The attempts of one group."""
    collector = Collector(cfg, {"*": Binding(ticks_boxes(renderer), renderer)})
    groups: list[Group] = asyncio.run(collector.collect([task(cells)], ATTEMPTS, Sampling(max_tokens=64), "boxes"))
    rows = [t for g in groups for t in g.trajectories]
    assert all(t.failure is None and len(t.turns) == SCREENSHOTS for t in rows), rows[0].failure
    return Batch.of([s for i, t in enumerate(rows) for s in trajectory_samples(t, i, 0, supervised=True)])


def main() -> None:
    """Print tokens, images and seconds of both ways, with the tower frozen and trained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=16, help="of a screen's side, 16 pixels and one token each")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions; the best counts")
    parser.add_argument("--threads", type=int, default=0, help="0: as the trainer chooses")
    args = parser.parse_args()
    disable_progress_bar()
    for frozen in (True, False):
        cfg = compose(
            None,
            [
                *("actor_rollout_ref.model.path=scratch_vision", "agent.agent_type=gui", "agent.reward_name=gui_goal"),
                *("data.made_up=screen", f"agent.max_turns={SCREENSHOTS}", f"gui.history={SCREENSHOTS}"),
                *("agent.max_tokens_per_turn=64", "agent.system_prompt=''", "trainer.device=cpu"),
                *(f"trainer.threads={args.threads}", f"actor_rollout_ref.actor.freeze_vision_tower={frozen}"),
            ],
        )
        parts = build(cfg, STILL, 1)
        batch = collect(cfg, parts.renderer, args.cells)
        batches = {"tree": batch, "rows": row_by_row(batch)}
        advantages = np.random.default_rng(0).normal(size=batch.entries).astype(np.float32)
        agree = check_gradients(parts, batches, advantages, cfg)
        learner: TrainedModel = parts.learner.trained
        found = best_seconds(learner, batches, advantages, cfg, args.repeats)
        (fast, few), (slow, many) = found["tree"], found["rows"]
        verdict = "ok" if slow >= TARGET * fast else "MISSED"
        print(
            f"tower {'frozen ' if frozen else 'trained'} {learner.threads} thr  tree {fast:.3f} s ({few} tokens)  "
            f"rows {slow:.3f} s ({many} tokens)  tokens {many / few:.2f}×  seconds {slow / fast:.2f}× "
            f"(≥ {TARGET:g}× {verdict}); gradients agree to {agree:.1e}, {computed(learner)} images computed",
            flush=True,
        )


def computed(learner: TrainedModel) -> int:
    """Images that went through the tower."""
    sight = sight_of(learner.model)
    assert sight is not None
    return sight.computed


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
