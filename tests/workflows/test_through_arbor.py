"""`recollect locomo --arbor URL`: through our own server, and what is said where there is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.models.program_file import read_program
from recollect.policies import arbor_job
from recollect.policies.arbor_job import ArborError, ArborJob
from recollect.runtime.console import Console
from recollect.serve.arbor.job_settings import job_settings
from recollect.serve.arbor.payloads import job_request
from recollect.types import BadInput
from recollect.workflows.locomo.arbor_settings import initialize_body
from recollect.workflows.locomo.locomo_run import run_locomo
from recollect.workflows.locomo.plan import LocomoPlan
from tests.data.conversations import conversation, write
from tests.serve.arbor.arbor_client import Arbor

SMALL = ("size=cpu", "data.max_response_length=6")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Arbor]:
    made = Arbor(tmp_path / "jobs")
    yield made
    made.stop()


def plan(folder: Path, url: str, *settings: str, **more: Any) -> LocomoPlan:
    data = write(folder / "locomo10.json", *(conversation(f"conv-{n}", 2) for n in (1, 2, 3)))
    options: dict[str, Any] = {"split": "conv-1/conv-2", "num_train_steps": 2, "model": "tiny"} | more
    places = {"out": folder / "out", "program": folder / "program.json"}
    return LocomoPlan("train", str(data), settings=[*SMALL, *settings], arbor=url, **places, **options)


def test_the_server_trains_what_it_sampled_and_a_program_is_written(tmp_path: Path, server: Arbor) -> None:
    found = run_locomo(plan(tmp_path, server.url), False, Console(True))
    rows = [json.loads(line) for line in (tmp_path / "out" / "arbor" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["groups"], row["failed"]) for row in rows] == [(1, 2, 0), (2, 2, 0)]
    assert found["fidelity"]["fidelity"] == 1.0
    assert found["fidelity"]["completions"] == {"matched": 8}
    program = read_program(str(tmp_path / "program.json"))
    assert program.run == (tmp_path / "out" / "arbor").resolve()
    assert (program.merged / "model.safetensors").is_file()
    again = run_locomo(plan(tmp_path, server.url), False, Console(True))  # nothing is left to do
    assert (again["job"], again["fidelity"]) == (found["job"], found["fidelity"])
    more = run_locomo(plan(tmp_path, server.url, num_train_steps=3), False, Console(True))
    assert more["job"] != found["job"]
    rows = [json.loads(line) for line in (tmp_path / "out" / "arbor" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]


def test_a_killed_client_goes_on_with_its_job(tmp_path: Path, server: Arbor, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ArborJob.post
    calls: list[int] = []

    def post(self: ArborJob, number: int, rows: Any) -> None:
        calls.append(number)
        if len(calls) == 4:
            raise KeyboardInterrupt
        whole(self, number, rows)

    monkeypatch.setattr(ArborJob, "post", post)
    asked = plan(tmp_path, server.url)
    with pytest.raises(KeyboardInterrupt):
        run_locomo(asked, False, Console(True))
    found = run_locomo(asked, False, Console(True))
    assert len(set(calls)) == len(calls) - 1  # the id of the interrupted group is filled again
    assert found["fidelity"]["completions"]["matched"] == 8
    assert len(list((tmp_path / "jobs").iterdir())) == 1 + (tmp_path / "jobs" / "lock").exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://127.0.0.1:9/v1/"])
def test_without_a_server_it_says_how_to_start_one(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadInput) as caught:
        run_locomo(plan(tmp_path, url), False, Console(True))
    assert str(caught.value).startswith("No Arbor server found at http://127.0.0.1:9/v1 (")
    assert "recollect serve tiny --trainable --arbor-config arbor.yaml" in str(caught.value)
    assert not (tmp_path / "out" / "arbor").exists()


def test_a_server_that_trains_nothing_is_no_arbor_server(tmp_path: Path) -> None:
    class NotFound(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(404)

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), NotFound) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(BadInput, match=r"No Arbor server found at .*\(404 for "):
            run_locomo(plan(tmp_path, f"http://127.0.0.1:{server.server_port}"), False, Console(True))
        server.shutdown()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"arbor": "localhost"}, "give an address such as"),
        ({"settings": ["conversation.memory=recurrent"]}, "train that without --arbor"),
        ({"mode": "evaluate"}, "--arbor goes with --mode train"),
        ({"settings": ["sft.steps=4"]}, "--arbor: sft.steps has no effect through a server"),
        ({"settings": ["trainer.threads=2"]}, "--arbor: trainer.threads has no effect"),
        ({"settings": ["actor_rollout_ref.actor.clip_ratio_high=0.3"]}, "clip_ratio_high has no effect"),
        ({"settings": ["algorithm.adv_estimator=rloo"]}, "adv_estimator=rloo cannot be asked for there; only grpo can"),
        ({"settings": ["algorithm.group_by=task"]}, "group_by=task cannot be asked for there"),
    ],
)
def test_what_cannot_be_asked_for(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        run_locomo(replace(plan(tmp_path, "http://127.0.0.1:9"), **change), False, Console(True))
    assert not (tmp_path / "out" / "arbor").exists()


class Pending(BaseHTTPRequestHandler):
    """A server with one pending id."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"pending_batch_ids": [3]}')

    def log_message(self, *args: Any) -> None:
        pass


def test_a_server_that_is_away_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arbor_job, "POLL_S", 0.05)
    with HTTPServer(("127.0.0.1", 0), Pending) as server:
        port = server.server_port
    said: list[str] = []  # the server is gone; each word starts another one on its port
    back: list[HTTPServer] = []

    def warn(message: str) -> None:
        said.append(message)
        back.append(HTTPServer(("127.0.0.1", port), Pending))
        threading.Thread(target=back[0].serve_forever, daemon=True).start()

    assert ArborJob(f"http://127.0.0.1:{port}/v1", "job", wait_s=60, warn=warn).pending() == [3]
    assert said == [f"http://127.0.0.1:{port}/v1 went away; waiting up to 60 s for it"]
    back[0].shutdown()
    back[0].server_close()
    with pytest.raises(ArborError, match="went away"):
        ArborJob(f"http://127.0.0.1:{port}/v1", "job", wait_s=0.1).post(3, [])


def test_the_settings_arrive_as_they_were() -> None:
    actor = "actor_rollout_ref.actor"
    given = ["actor_rollout_ref.rollout.n=8", f"{actor}.loss_agg_mode=seq-mean-token-mean", f"{actor}.ppo_epochs=3"]
    given += [f"{actor}.optim.lr_scheduler_type=cosine", f"{actor}.ppo_mini_batch_size=1", f"{actor}.grad_clip=inf"]
    given += ["actor_rollout_ref.model.lora_dropout=0.1", "actor_rollout_ref.model.enable_gradient_checkpointing=false"]
    cfg = compose("locomo", given)
    made = dict(job_settings(job_request(json.loads(json.dumps(initialize_body(cfg, 77), allow_nan=False)))))
    assert made.pop("trainer.total_training_steps") == 77
    for key, value in made.items():
        own: Any = cfg
        for name in key.split("."):
            own = getattr(own, name)
        assert own == value, key
