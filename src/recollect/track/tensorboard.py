"""TensorBoard: event files, written with tensorboard's own writer (torch's would load torch)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from recollect.track.tracker import About


class Tensorboard:
    """Scalars in ``trackers/tensorboard``."""

    def open(self, about: About) -> str:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.writer = EventFileWriter(str(about.folder))
        return ""

    def log(self, step: int, row: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=key, simple_value=value) for key, value in row.items()]
        self.writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
