"""An agent, an estimator, a loss and trackers that are not of the package, named by ``module:function``."""

from __future__ import annotations

import json
import textwrap
from copy import deepcopy
from pathlib import Path

import pytest

from recollect.algos.chosen import check_algorithm, chosen_estimator
from recollect.config import Config
from recollect.config.compose import compose, from_yaml, to_yaml
from recollect.config.roles import roles_of
from recollect.config.startup_messages import startup_messages
from recollect.data.sections import section_limit
from recollect.registries import AGENTS, ESTIMATORS
from recollect.runs.directory import RunDirectory
from recollect.runs.trackers.chosen_trackers import make_tracker, trackers_of
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun
from recollect.types import BadInput

OUTSIDE = """
    import json, os
    from pathlib import Path
    from recollect.registries import agent, estimator, tracker

    @agent(roles=("writer", "critic"), reads_document=True, section_limit=lambda cfg: ("data.needle.chunks", 7))
    async def two_roles(task, session, cfg):
        draft = await session.generate(task.question, role="writer", max_tokens=8)
        return (await session.generate(f"{draft.text}?", role="critic", max_tokens=8)).text

    async def says_nothing(task, session, cfg):
        return (await session.generate(task.question, max_tokens=8)).text

    @estimator(compares=True)
    def over_half(rewards, values, mask, trajectories, groups, *, gamma, lam, use_std, baselines):
        advantages = (rewards.sum() / 2 - rewards) * mask
        Path(os.environ["OUTSIDE"], "estimated").write_text(str(len(rewards)))
        return advantages, advantages

    @estimator(needs_critic=True)
    def with_values(rewards, values, mask, trajectories, groups, **options):
        return rewards - values, rewards

    def undecorated(rewards, values, mask, trajectories, groups, **options):
        return rewards, rewards

    def too_few(rewards):
        return rewards

    def my_loss(logp, old, advantages, mask, **options):
        Path(os.environ["OUTSIDE"], "weighed").touch()
        return -advantages * logp, logp.detach() * 0

    class File:
        def open(self, about):
            self.file = (about.folder / "rows").open("a")
            return f"mine: in {about.folder}"

        def log(self, step, row):
            print(json.dumps([step, dict(row)]), file=self.file)

        def close(self):
            self.file.close()

    def each_row(step, row):
        with Path(os.environ["OUTSIDE"], "rows").open("a") as file:
            print(step, file=file)

    @tracker(packages=("no_such_package",))
    class Lacking(File):
        pass

    class Nothing:
        pass

    def odd(one, two, three):
        pass

    def reward(answer, trajectory):
        return 0.5 * trajectory.sample
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module's name; it can be imported here and in the trackers' processes."""
    name = f"outside_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(OUTSIDE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OUTSIDE", str(tmp_path))
    return name


def small(folder: Path, model: Path) -> Config:
    cfg = Config()
    cfg.agent.max_tokens_per_turn = 16
    cfg.actor_rollout_ref.model.path, cfg.actor_rollout_ref.rollout.n = str(model), 4
    cfg.data.train_batch_size, cfg.data.val_max_samples, cfg.data.needle.chunks = 2, 2, 1
    cfg.evaluation.lengths, cfg.evaluation.tasks = [1], [2]
    cfg.trainer.total_training_steps, cfg.trainer.threads, cfg.trainer.device = 1, 1, "cpu"
    cfg.trainer.default_local_dir = str(folder / "run")
    return cfg


def test_a_run_with_all_of_them(outside: str, tmp_path: Path, small_model: Path) -> None:
    cfg = small(tmp_path, small_model)
    cfg.agent.agent_type, cfg.agent.reward_name = f"{outside}:two_roles", f"{outside}:reward"
    cfg.algorithm.adv_estimator = f"{outside}:over_half"
    cfg.actor_rollout_ref.actor.policy_loss.loss_mode = f"{outside}:my_loss"
    cfg.trainer.logger = [f"{outside}:File", f"{outside}:each_row", f"{outside}:Lacking"]
    TrainRun(cfg, Console(quiet=True)).fit()
    run = RunDirectory(tmp_path / "run")
    trajectories = list(run.trajectories())
    assert {turn["role"] for row in trajectories for turn in row["turns"]} == {"writer", "critic"}
    assert int((tmp_path / "estimated").read_text()) > 0
    assert (tmp_path / "weighed").exists()
    (row,) = [r for r in run.metrics() if "actor/grad_norm" in r]
    assert row["actor/grad_norm"] > 0
    shown = (run.path / "trackers" / f"{outside}_File" / "rows").read_text().splitlines()
    assert any("actor/grad_norm" in json.loads(line)[1] for line in shown)
    assert len((tmp_path / "rows").read_text().splitlines()) == len(shown) == len(list(run.metrics()))
    assert not (run.path / "trackers" / f"{outside}_Lacking").exists()


def test_facts_of_an_agent_take_effect(outside: str, tmp_path: Path) -> None:
    kind = f"agent.agent_type={outside}:two_roles"
    cfg = compose("needle", [kind])
    assert roles_of(cfg) == ("writer", "critic")
    assert section_limit(cfg) == ("data.needle.chunks", 7)
    assert AGENTS.knows(cfg.agent.agent_type, "reads_document")
    assert not AGENTS.knows(cfg.agent.agent_type, "many_questions")
    with pytest.raises(BadInput, match=r"has no such role; it has writer, critic"):
        compose("needle", [kind, "roles.qa=trainable"])
    with pytest.raises(BadInput, match=r"uses no tools; those that do: hf"):
        compose("needle", [kind, "agent.tools=[calculator]"])
    with pytest.raises(BadInput, match=r"data.made_up=ledger has several questions"):
        compose("needle", [kind, "data.made_up=ledger"])
    file = tmp_path / f"{outside}.py"
    assert roles_of(compose("needle", [f"agent.agent_type={file}:two_roles"])) == ("writer", "critic")
    assert roles_of(compose("needle", [f"agent.agent_type={outside}:says_nothing"])) is None
    assert roles_of(compose("needle", ["agent.agent_type=not_there:two_roles"])) is None  # a run says why


def test_facts_of_an_estimator_take_effect(outside: str) -> None:
    one, plain_one = "actor_rollout_ref.rollout.n=1", f"algorithm.adv_estimator={outside}:undecorated"
    comparing = compose("needle", [f"algorithm.adv_estimator={outside}:over_half", one])
    assert any("compares attempts at a task" in line for line in startup_messages(comparing))
    plain = compose("needle", [plain_one, one])
    assert not any("compares attempts" in line for line in startup_messages(plain))
    assert not chosen_estimator(f"{outside}:undecorated").needs_critic
    with pytest.raises(BadInput, match=r"only algorithm.adv_estimator=gae has a critic"):
        compose("needle", [f"algorithm.adv_estimator={outside}:over_half", "trainer.critic_warmup=2"])
    with pytest.raises(BadInput, match=r"only algorithm.adv_estimator=gae has a critic"):
        check_algorithm(compose("needle", [plain_one, "trainer.critic_warmup=2"]))
    compose("needle", [f"algorithm.adv_estimator={outside}:with_values", "trainer.critic_warmup=2"])
    assert f"{outside}:over_half" not in ESTIMATORS  # only built-in names are listed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("not_there:f", "algorithm.adv_estimator: module not_there cannot be imported"),
        ("{}:nobody", "has no function nobody"),
        ("{}:too_few", r"must take \(rewards, values, mask, trajectories, groups, \*, gamma"),
    ],
)
def test_an_estimator_that_cannot_work_is_refused_before_the_run(
    name: str, words: str, outside: str, tmp_path: Path, small_model: Path
) -> None:
    cfg = small(tmp_path, small_model)
    cfg.algorithm.adv_estimator = name.format(outside)
    with pytest.raises(BadInput, match=words):
        check_algorithm(cfg)
    with pytest.raises(BadInput, match=words):
        TrainRun(cfg, Console(quiet=True))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("not_there:Tracker", "trainer.logger: module not_there cannot be imported"),
        ("{}:nobody", "has no function nobody"),
        ("{}:Nothing", r"a class of trackers has open\(about\), log\(step, row\), close\(\); it has no open"),
        ("{}:odd", r"write it as `def odd\(step, row\)`"),
    ],
)
def test_a_tracker_that_cannot_work_is_refused(name: str, words: str, outside: str) -> None:
    with pytest.raises(BadInput, match=words):
        trackers_of(["console", name.format(outside)])
    with pytest.raises(BadInput, match=words):
        make_tracker(name.format(outside))


def test_a_tracker_without_its_package_is_left_out(outside: str) -> None:
    heard: list[str] = []
    assert trackers_of([f"{outside}:Lacking"], heard.append) == []
    assert "pip install no_such_package" in heard[0]


def test_a_file_is_loaded_once_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = "from recollect.registries import agent\n@agent(roles=({!r},))\nasync def one(task, session, cfg): ...\n"
    file.write_text(text.format("first"))
    kind = f"{file}:one"
    assert AGENTS.of(kind) is AGENTS.of(kind)
    file.write_text(text.format("second one"))
    spec = AGENTS.of(kind)
    assert spec is not None
    assert spec.roles == ("second one",)


def test_a_run_that_an_outside_estimator_gives_a_critic_goes_on(
    outside: str, tmp_path: Path, small_model: Path
) -> None:
    cfg = small(tmp_path, small_model)
    cfg.agent.agent_type, cfg.agent.reward_name = f"{outside}:says_nothing", f"{outside}:reward"
    cfg.algorithm.adv_estimator = f"{outside}:with_values"
    TrainRun(deepcopy(cfg), Console(quiet=True)).fit()
    cfg.trainer.total_training_steps = 2
    assert TrainRun(cfg, Console(quiet=True)).fit()["steps"] == 2
    assert sum("critic/values_mean" in row for row in RunDirectory(tmp_path / "run").metrics()) == 2


def test_stored_settings_run_nothing_when_they_are_read(tmp_path: Path) -> None:
    """A run of somebody else's may name any file."""
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nasync def f(*a, **k): ...\n")
    cfg = Config()
    cfg.agent.agent_type = cfg.algorithm.adv_estimator = f"{evil}:f"
    cfg.actor_rollout_ref.actor.policy_loss.loss_mode, cfg.trainer.logger = f"{evil}:f", [f"{evil}:f"]
    cfg.trainer.critic_warmup, cfg.roles = 2, {"any": "trainable"}
    assert from_yaml(to_yaml(cfg)).agent.agent_type == f"{evil}:f"
    assert not (tmp_path / "ran").exists()


def test_a_loss_that_cannot_work_is_refused(outside: str) -> None:
    cfg = compose("needle", [f"actor_rollout_ref.actor.policy_loss.loss_mode={outside}:too_few"])
    with pytest.raises(BadInput, match=r"loss_mode=.*must take \(logp, old, advantages, mask"):
        check_algorithm(cfg)
