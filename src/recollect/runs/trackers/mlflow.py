"""MLflow: the server that MLFLOW_TRACKING_URI names, else a database in the run directory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from recollect.registries import tracker
from recollect.runs.trackers.tracker import About, flat

_FORBIDDEN = re.compile(r"[^\w\-. :/]")
MOST = 100  # parameters or metrics in one request


@tracker("mlflow", packages=("mlflow", "sqlalchemy", "alembic"), extra="mlflow")
class Mlflow:
    """One MLflow run whose id is kept. Characters that MLflow does not allow in names become ``_``."""

    def open(self, about: About) -> str:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        given = os.environ.get("MLFLOW_TRACKING_URI")
        uri = given or f"sqlite:///{about.folder.resolve()}/mlflow.db"
        self.client = MlflowClient(tracking_uri=uri)
        if about.known("id"):
            self.id = about.remember("id")
            self.client.update_run(self.id, status="RUNNING")
        else:
            found = self.client.get_experiment_by_name(about.project)
            place = None if given else f"file://{about.folder.resolve()}/artifacts"
            experiment = found.experiment_id if found else self.client.create_experiment(about.project, place)
            self.id = self.client.create_run(experiment, run_name=about.experiment).info.run_id
            params = [Param(_name(k), str(v)[:500]) for k, v in flat(about.config).items()]
            for start in range(0, len(params), MOST):
                self.client.log_batch(self.id, params=params[start : start + MOST])
            about.remember("id", self.id)
        return "" if given else f"mlflow: no MLFLOW_TRACKING_URI, so in {about.folder}/mlflow.db"

    def log(self, step: int, row: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_name(key), value, now, step) for key, value in row.items()]
        for start in range(0, len(metrics), MOST):
            self.client.log_batch(self.id, metrics=metrics[start : start + MOST])

    def close(self) -> None:
        self.client.set_terminated(self.id)


def _name(key: str) -> str:
    return _FORBIDDEN.sub("_", key)
