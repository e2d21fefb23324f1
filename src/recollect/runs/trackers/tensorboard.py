"""TensorBoard: event files, written with tensorboard's own writer (torch's would load torch)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from recollect.registries import tracker
from recollect.runs.trackers.tracker import About

LOGS = "logs"  # a link in the run directory, where users of other trainers look


@tracker("tensorboard", packages=("tensorboard",), extra="tensorboard")
class Tensorboard:
    """Scalars in ``trackers/tensorboard``, which ``logs`` in the run directory is a link to."""

    def open(self, about: About) -> str:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.writer = EventFileWriter(str(about.folder))
        run = about.folder.parent.parent
        with suppress(OSError):  # it is there already, or the file system has no links
            (run / LOGS).symlink_to(about.folder.relative_to(run), target_is_directory=True)
        place = run / LOGS if (run / LOGS).is_dir() else about.folder
        return f"tensorboard: to look: tensorboard --logdir {place}"

    def log(self, step: int, row: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=key, simple_value=value) for key, value in row.items()]
        self.writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
