"""Weights & Biases: online with WANDB_API_KEY, else offline in the run directory; WANDB_MODE decides if it is set."""

from __future__ import annotations

import os
from collections.abc import Mapping

from recollect.registries import tracker
from recollect.runs.trackers.tracker import About


@tracker("wandb", packages=("wandb",), extra="wandb")
class Wandb:
    """One run whose id is kept, so that a resumed run goes on in it."""

    def open(self, about: About) -> str:
        offline = not os.environ.get("WANDB_MODE") and not os.environ.get("WANDB_API_KEY")
        for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
            os.environ.setdefault(name, str(about.folder))
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self.run = wandb.init(
            project=about.project,
            name=about.experiment,
            id=about.remember("id"),
            resume="allow",
            dir=str(about.folder),
            config=about.config,
            mode="offline" if offline else None,
            settings=wandb.Settings(
                silent=True, console="off", init_timeout=30, save_code=False, disable_git=True, disable_code=True
            ),
        )
        self.run.define_metric("step")
        self.run.define_metric("sft/step")
        self.run.define_metric("*", step_metric="step")
        self.run.define_metric("sft/*", step_metric="sft/step")  # SFT counts its own steps
        if not offline:
            return ""
        return (
            f"wandb: no WANDB_API_KEY, so offline in {about.folder}; later: wandb sync {about.folder}/wandb/offline-*"
        )

    def log(self, step: int, row: Mapping[str, float]) -> None:
        axis = "sft/step" if any(key.startswith("sft/") for key in row) else "step"
        self.run.log({**row, axis: step})

    def close(self) -> None:
        self.run.finish()
