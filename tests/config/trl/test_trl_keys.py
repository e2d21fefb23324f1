"""Every key of VideoMultiAgents' files of settings sets what the table says, or nothing; what cannot be is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from recollect.cli.app import configure
from recollect.config import Config
from recollect.config.compose import flatten
from recollect.config.translate.trl.keys import RL, SFT, TRLKey
from recollect.rewards import find_reward
from recollect.types import BadInput
from tests.config.trl.files import RL_DEFAULTS, TRL_DEFAULTS

FILES = {"sft": TRL_DEFAULTS, "train": RL_DEFAULTS}
OTHER: dict[str, Any] = {  # another value of each key
    "model_name": "scratch",
    "out_dir": "elsewhere",
    "tool": "bash",
    "data_root": "other",
    "train_file": "t.jsonl",
    "val_file": "v.jsonl",
    "max_steps": 7,
    "lr_scheduler_type": "constant",
    "eval_strategy": "no",
    "bf16": True,
    "gradient_checkpointing": False,
    "report_to": ["wandb"],
    "log_with": "wandb",
    "trajectory_glob": "other/*.json",
    "batch_size": 8,
    "domain_weights": {},
    "fp16": False,
    "push_to_hub": False,
}
ALSO = {"actor_rollout_ref.model.path": {"agent.model_name_or_path", "critic.model.path"}}  # that say the same
ALSO["actor_rollout_ref.actor.ppo_mini_batch_size"] = {"critic.ppo_mini_batch_size"}
ALSO["actor_rollout_ref.actor.ppo_epochs"] = {"critic.ppo_epochs"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for root in ("data/sft", "other"):
        for tool in ("reason", "bash"):
            folder = tmp_path / root / tool
            folder.mkdir(parents=True)
            for name in ("train", "val", "t", "v"):
                (folder / f"{name}.jsonl").write_text('{"prompt": "a", "response": "b"}\n')
    return tmp_path


def config(command: str, *options: str, **values: Any) -> Config:
    Path("file.yaml").write_text(yaml.safe_dump({**FILES[command], **values}))
    return configure(command, None, Path("file.yaml"), list(options)).cfg


def keys_of(cfg: Config) -> dict[str, Any]:
    return flatten(OmegaConf.structured(cfg))


def other(key: TRLKey, before: Any) -> Any:
    return OTHER[key.name] if key.name in OTHER else (before or 0) * 2 + 1 if key.name != "gamma" else 0.5


CASES = [(command, key) for command, keys in (("sft", SFT), ("train", RL)) for key in keys]


@pytest.mark.parametrize(("command", "key"), CASES, ids=[f"{c}-{k.name}" for c, k in CASES])
def test_a_key_changes_what_its_row_says_and_nothing_else(command: str, key: TRLKey) -> None:
    before = FILES[command].get(key.name, key.default)
    value = other(key, before)
    value = min(value, 0.9) if key.name in ("lam", "warmup_ratio", "min_reward") else value
    value = 4 if key.name == "mini_batch_size" else value
    if key.name in ("report_to", "log_with"):
        plain = {"report_to": ["none"], **({"log_with": "none"} if command == "train" else {})}
        old, new = config(command, **plain), config(command, **{**plain, key.name: value})
    else:
        old, new = config(command), config(command, **{key.name: value})
    first, second = keys_of(old), keys_of(new)
    changed = {name for name in first if first[name] != second[name]}
    said = {n for name in key.becomes for n in (name, *ALSO.get(name, ()))}
    if key.name == "domain_weights":
        assert first["agent.reward_name"] == "trajectory(weights=file.yaml)"
    elif key.becomes:
        assert changed
        assert changed <= said
        if key.name not in ("report_to", "log_with"):
            word = json.dumps(value) if isinstance(value, bool) else value
            assert keys_of(config(command, f"{key.name}={word}")) == second
    else:
        assert not changed


@pytest.mark.parametrize(("command", "names"), [("sft", TRL_DEFAULTS), ("train", RL_DEFAULTS)])
def test_the_table_has_every_key_of_the_file(command: str, names: dict[str, Any]) -> None:
    assert names.keys() <= {key.name for key in (SFT if command == "sft" else RL)}


def test_supervised_settings_mean_what_they_mean_in_trl() -> None:
    cfg = config("sft", per_device_train_batch_size=3, gradient_accumulation_steps=5, warmup_ratio=0.1)
    assert (cfg.sft.batch_size, cfg.sft.steps, cfg.trainer.total_epochs) == (15, 0, 1)
    optim = cfg.sft.optim
    assert (optim.lr, optim.lr_warmup_steps, optim.lr_warmup_steps_ratio) == (2e-5, -1, 0.1)
    assert cfg.trainer.default_local_dir == "models/sft/reason"
    assert (cfg.data.train_files, cfg.data.val_files) == (
        ["data/sft/reason/train.jsonl"],
        ["data/sft/reason/val.jsonl"],
    )
    assert cfg.trainer.logger == ["console", "tensorboard"]
    assert config("sft", max_steps=9).sft.steps == 9
    assert config("sft", lr_scheduler_type="constant").sft.optim.lr_warmup_steps_ratio == 0
    assert config("sft", lr_scheduler_type="constant_with_warmup").sft.optim.lr_warmup_steps_ratio == 0.03
    assert config("sft", learning_rate="2e-5").sft.optim.lr == 2e-5  # YAML reads it as a text
    assert config("sft", eval_strategy=False).sft.test_freq == -1  # YAML reads `no` as false
    Path("data/sft/reason/val.jsonl").unlink()
    assert config("sft").data.val_files == []


def test_reinforcement_is_ppo_with_a_critic_over_the_trajectories_domains() -> None:
    cfg = config("train")
    assert (cfg.algorithm.adv_estimator, cfg.agent.agent_type) == ("gae", "domain")
    assert (cfg.data.train_batch_size, cfg.actor_rollout_ref.rollout.n) == (4, 1)
    assert (cfg.critic.optim.lr, cfg.critic.grad_clip, cfg.critic.loss_coef, cfg.critic.ppo_epochs) == (
        1e-5,
        0.5,
        0.1,
        4,
    )
    assert (cfg.algorithm.gamma, cfg.algorithm.lam) == (0.99, 0.95)
    find_reward(cfg.agent.reward_name, cfg)  # reads the weights from the very file
    from recollect.rewards.weights import Weights

    assert Weights.load("file.yaml").of("math")["completion"] == 0.7
    assert configure("train", None, Path("file.yaml"), ["trajectory_glob=mine/*.json"]).cfg.data.train_files == [
        "mine/*.json"
    ]


def test_a_part_of_the_file_as_the_guide_prints_it() -> None:
    Path("part.yaml").write_text(
        "model_name: tiny\nlearning_rate: 1.0e-5\nbatch_size: 4\nppo_epochs: 4\nmin_reward: 0.0\n"
    )
    cfg = configure("train", ["trainer.seed=3"], Path("part.yaml"), ["trajectory_glob=x.json"]).cfg
    assert (cfg.algorithm.gamma, cfg.actor_rollout_ref.actor.ppo_mini_batch_size, cfg.trainer.seed) == (0.99, 2, 3)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("sft", {"push_to_hub": True}, "push_to_hub=True: nothing is sent anywhere"),
    ("sft", {"fp16": True}, "fp16=True: .*write bf16: true"),
    ("sft", {"eval_strategy": "epoch"}, "write eval_strategy: steps"),
    ("sft", {"eval_strategy": "often"}, "eval_strategy=often has to be steps or no"),
    ("sft", {"lr_scheduler_type": "polynomial"}, "no such schedule"),
    ("sft", {"num_train_epochs": 0.5}, r"num_train_epochs=0\.5 has to be a positive whole number"),
    ("sft", {"learning_rate": "fast"}, "learning_rate=fast has to be a number"),
    ("sft", {"bf16": "perhaps"}, "bf16=perhaps has to be true or false"),
    ("sft", {"report_to": "all"}, "all is no tracker here"),
    ("sft", {"learning_rat": 1}, "unknown key learning_rat; did you mean learning_rate"),
    ("sft", {"ppo_epochs": 1}, "ppo_epochs is a key of `recollect train`"),
    ("sft", {"tool": "python"}, "no data of the tool python at .*; data/sft has bash, reason"),
    ("train", {"max_seq_length": 1}, "max_seq_length is a key of `recollect sft`"),
    ("train", {"agents": {}}, "agents is of a whole pipeline: `recollect pipeline FILE`"),
    ("train", {"mini_batch_size": 3}, "is not a multiple of"),
    ("train", {"cliprange": True}, "cliprange=True has to be a number"),
    ("train", {"domain_weights": 3}, "domain_weights=3 has to be a mapping"),
]


@pytest.mark.parametrize(("command", "values", "message"), BAD)
def test_what_cannot_be_had_is_refused_with_its_reason(command: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        config(command, **values)


def test_options_without_a_file_are_settings() -> None:
    made = configure("sft", None, None, ["model_name=tiny", "data_root=data/sft", "out_dir=o"], "reason")
    assert made.cfg.data.train_files == ["data/sft/reason/train.jsonl"]
    assert (made.cfg.trainer.default_local_dir, made.tool) == ("o/reason", None)
    assert made.cfg.sft.optim.lr == Config().sft.optim.lr
    made = configure("sft", ["data.train_files=data/sft"], None, [], "reason")
    assert made.tool == "reason"
    made = configure("train", ["data.train_files=x.jsonl"], None, ["min_reward=0.3", "max_examples=5"])
    assert (made.cfg.data.min_reward, made.cfg.data.train_max_samples) == (0.3, 5)


def test_options_are_found_among_the_words_of_a_command() -> None:
    from recollect.cli import _spelt_out

    words = ["sft", "--model_name", "tiny", "--tool", "reason", "--data-root=data/sft", "--quiet", "sft.steps=3"]
    made = [
        "sft",
        "--key",
        "model_name=tiny",
        "--tool",
        "reason",
        "--key",
        "data_root=data/sft",
        "--quiet",
        "sft.steps=3",
    ]
    assert _spelt_out(words) == made
    assert _spelt_out(["train", "--min_reward", "0.3", "--batch_size=2"]) == [
        *("train", "--min_reward", "0.3", "--key", "batch_size=2"),
    ]
    assert _spelt_out(["convert", "--out_dir", "x"]) == ["convert", "--out_dir", "x"]
    assert _spelt_out(["pipeline", "--skip_generation", "--skip-rl"]) == [
        "pipeline",
        *("--skip", "generate"),
        *("--skip", "rl"),
    ]
    with pytest.raises(BadInput, match="--out_dir needs a value"):
        _spelt_out(["train", "--out_dir"])
