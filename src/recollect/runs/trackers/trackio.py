"""Trackio: a local database in the run directory, or what its own environment variables name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from recollect.registries import tracker
from recollect.runs.trackers.tracker import About


@tracker("trackio", packages=("trackio",), extra="trackio")
class Trackio:
    """One Trackio run, found again by its name."""

    def open(self, about: About) -> str:
        remote = os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL")
        os.environ.setdefault("TRACKIO_DIR", str(about.folder.resolve()))
        os.environ.setdefault("TRACKIO_LOGBOOK_AUTONOTE", "0")
        import trackio

        plain: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        self.run = trackio.init(
            project=about.project, name=about.experiment, config=about.config, resume="allow", **plain
        )
        return "" if remote else f"trackio: in {about.folder}; to look: TRACKIO_DIR={about.folder} trackio show"

    def log(self, step: int, row: Mapping[str, float]) -> None:
        self.run.log(dict(row), step=step)

    def close(self) -> None:
        self.run.finish()
