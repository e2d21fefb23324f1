"""SwanLab: online with SWANLAB_API_KEY, else offline in the run directory; SWANLAB_MODE decides if it is set."""

from __future__ import annotations

import os
from collections.abc import Mapping

from recollect.registries import tracker
from recollect.runs.trackers.tracker import About


@tracker("swanlab", packages=("swanlab",), extra="swanlab")
class Swanlab:
    """One experiment; nothing but metrics and configuration is collected."""

    def open(self, about: About) -> str:
        offline = not os.environ.get("SWANLAB_MODE") and not os.environ.get("SWANLAB_API_KEY")
        import swanlab

        quiet = {"hardware": False, "runtime": False, "requirements": False, "git": False, "monitor": False}
        mode = "offline" if offline else os.environ.get("SWANLAB_MODE") or "online"
        self.run = swanlab.init(
            project=about.project,
            name=about.experiment,
            id=about.remember("id"),
            resume="allow",
            log_dir=str(about.folder),
            mode=mode,
            config=about.config,
            settings=swanlab.Settings(interactive=False, probe=quiet, terminal={"proxy_type": "none"}),
        )
        if not offline:
            return ""
        return f"swanlab: no SWANLAB_API_KEY, so offline in {about.folder}; later: swanlab sync {about.folder}/run-*"

    def log(self, step: int, row: Mapping[str, float]) -> None:
        self.run.log(dict(row), step=step)

    def close(self) -> None:
        self.run.finish()
