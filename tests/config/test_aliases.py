"""Keys that say the same thing agree, whoever says it, and a resolved tree is a fixed point."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.config import Config
from recollect.config.aliases import resolve
from recollect.config.compose import compose, from_yaml, recipe_names, to_yaml, words
from recollect.runtime.secrets import redacted
from recollect.types import BadInput


def names(cfg: Config) -> dict[str, Any]:
    policy = cfg.actor_rollout_ref
    return {
        "samples": {policy.rollout.n, cfg.agent.num_chains},
        "length": {cfg.agent.max_tokens_per_turn, policy.rollout.response_length, cfg.data.max_response_length},
        "model": {policy.model.path, cfg.agent.model_name_or_path},
        "agent": (cfg.agent.agent_type, cfg.recurrent.enable),
    }


@st.composite
def trees(draw: Any) -> Config:
    cfg = Config()
    policy, optional = cfg.actor_rollout_ref, lambda values: st.none() | values
    cfg.agent.num_chains = draw(optional(st.integers(1, 9)))
    policy.rollout.n = draw(st.integers(1, 9))
    cfg.agent.max_tokens_per_turn = draw(optional(st.integers(1, 9)))
    policy.rollout.response_length = draw(optional(st.integers(1, 9)))
    cfg.data.max_response_length = draw(st.integers(1, 9))
    cfg.agent.model_name_or_path = draw(st.sampled_from([None, "tiny", "other"]))
    policy.model.path = draw(st.sampled_from(["tiny", "other"]))
    cfg.agent.use_agent = draw(st.booleans())
    kinds = ["recurrent", "chat", "react", "a.py:f"]
    cfg.agent.agent_type = draw(st.sampled_from(kinds))
    cfg.recurrent.enable = draw(st.sampled_from([None, "memory"]))
    policy.actor.policy_loss.loss_mode = draw(st.sampled_from(["ppo", "vanilla", "dr_grpo", "gspo"]))
    policy.actor.loss_agg_mode = draw(st.sampled_from(["token-mean", "seq-mean-token-sum-norm", "trajectory-mean"]))
    cfg.critic.model.path = draw(st.sampled_from(["", "tiny", "other"]))
    cfg.critic.model.share_actor = draw(st.booleans())
    cfg.critic.ppo_mini_batch_size = draw(st.integers(0, 3))
    policy.actor.ppo_mini_batch_size = draw(st.integers(0, 3))
    cfg.critic.ppo_epochs = draw(optional(st.integers(1, 3)))
    cfg.data.truncation = draw(st.sampled_from(["error", "left", "right", "center", "middle"]))
    return cfg


@settings(max_examples=60, deadline=None)
@given(trees())
def test_a_resolved_tree_is_a_fixed_point(cfg: Config) -> None:
    before = copy.deepcopy(cfg)
    try:
        once = resolve(cfg)
    except BadInput:  # two models: nothing to agree on
        return
    assert cfg == before
    assert resolve(once) == once
    found = names(once)
    assert all(len(found[key]) == 1 for key in ("samples", "length", "model"))
    assert (found["agent"][0] == "recurrent") == (found["agent"][1] == "memory")


ASKED_FOR = {"squad_search": ["search.corpus=corpus.jsonl"]}  # what a recipe needs in order to compose


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_stores_what_composes_to_itself(name: str) -> None:
    cfg = compose(name, ASKED_FOR.get(name, []))
    assert from_yaml(to_yaml(cfg)) == cfg == resolve(cfg)


ROLLOUT = "actor_rollout_ref.rollout"
CASES: list[tuple[str, dict[str, Any]]] = [
    ("agent.num_chains=3", {"samples": {3}}),
    (f"{ROLLOUT}.n=3", {"samples": {3}}),
    ("agent.max_tokens_per_turn=5", {"length": {5}}),
    (f"{ROLLOUT}.response_length=5", {"length": {5}}),
    ("data.max_response_length=5", {"length": {5}}),
    (f"data.max_response_length=5 {ROLLOUT}.response_length=6", {"length": {6}}),
    (f"data.max_response_length=5 {ROLLOUT}.response_length=6 agent.max_tokens_per_turn=7", {"length": {7}}),
    ("agent.model_name_or_path=a/b", {"model": {"a/b"}}),
    ("actor_rollout_ref.model.path=a/b", {"model": {"a/b"}}),
    ("actor_rollout_ref.model.path=a/b agent.model_name_or_path=a/b", {"model": {"a/b"}}),
    ("", {"agent": ("recurrent", "memory")}),
    ("recurrent.enable=memory", {"agent": ("recurrent", "memory")}),
    ("recurrent.enable=null", {"agent": ("chat", None)}),
    ("agent.use_agent=False", {"agent": ("chat", None)}),
    ("agent.use_agent=False agent.agent_type=react", {"agent": ("chat", None)}),
    ("agent.agent_type=hf", {"agent": ("hf", None)}),
    ("agent.agent_type=hf recurrent.enable=null", {"agent": ("hf", None)}),
    ("agent.agent_type=mine.py:f recurrent.enable=memory", {"agent": ("mine.py:f", None)}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
@pytest.mark.parametrize("recipe", ["needle", "hotpotqa_memory", None])
def test_what_the_command_says_wins_over_the_recipe(text: str, expected: dict[str, Any], recipe: str | None) -> None:
    given = ["data.train_files=[x.json]", *text.split()] if recipe is None else text.split()
    cfg = compose(recipe, given)
    assert {key: names(cfg)[key] for key in expected} == expected
    again = compose(None, text.split(), base=_tree(cfg))
    assert again == cfg


def _tree(cfg: Config) -> dict[str, Any]:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(OmegaConf.create(to_yaml(cfg)))  # type: ignore[return-value]


@pytest.mark.parametrize(("first", "text", "expected"), [(a[0], b[0], b[1]) for a in CASES for b in CASES[:10]])
def test_a_later_layer_wins_over_a_stored_run(first: str, text: str, expected: dict[str, Any]) -> None:
    """`recollect eval RUN key=value` speaks of any key by any of its names."""
    stored = _tree(compose("needle", first.split()))
    assert {key: names(compose(None, text.split(), base=stored))[key] for key in expected} == expected


def test_an_agent_can_be_changed_back_in_a_later_layer() -> None:
    chat = _tree(compose("needle", ["agent.use_agent=False"]))
    assert names(compose(None, ["agent.agent_type=recurrent"], base=chat))["agent"] == ("recurrent", "memory")
    assert names(compose(None, ["recurrent.enable=memory"], base=chat))["agent"] == ("recurrent", "memory")
    hf = _tree(compose("needle", ["agent.agent_type=hf"]))
    assert names(compose(None, ["agent.use_agent=True"], base=hf))["agent"] == ("hf", None)
    assert names(compose(None, ["recurrent.enable=null"], base=hf))["agent"] == ("hf", None)


def test_the_critic_follows_the_actor_unless_it_is_told_otherwise() -> None:
    cfg = compose("needle", ["actor_rollout_ref.model.path=a/b", "actor_rollout_ref.actor.ppo_mini_batch_size=8"])
    assert (cfg.critic.model.path, cfg.critic.ppo_mini_batch_size, cfg.critic.ppo_epochs) == ("a/b", 8, 1)
    other = compose(None, ["agent.model_name_or_path=c/d", "actor_rollout_ref.actor.ppo_epochs=3"], base=_tree(cfg))
    assert (other.critic.model.path, other.critic.ppo_mini_batch_size, other.critic.ppo_epochs) == ("c/d", 8, 3)
    told = _tree(compose("needle", ["critic.model.path=x/y"]))
    assert compose(None, ["actor_rollout_ref.model.path=c/d"], base=told).critic.model.path == "x/y"


def test_losses() -> None:
    actor = "actor_rollout_ref.actor"
    cfg = compose("needle", [f"{actor}.policy_loss.loss_mode=dr_grpo"])
    assert cfg.actor_rollout_ref.actor.loss_agg_mode == "seq-mean-token-sum-norm"
    assert cfg.algorithm.norm_adv_by_std_in_grpo is False
    assert compose("needle", [f"{actor}.policy_loss.loss_mode=vanilla"]) == compose("needle", [])


@pytest.mark.parametrize(
    "text",
    [
        f"agent.num_chains=3 {ROLLOUT}.n=4",
        "agent.model_name_or_path=a/b actor_rollout_ref.model.path=c/d",
        "agent.model_name_or_path=a/b actor_rollout_ref.model.path=tiny",
        "agent.agent_type=react recurrent.enable=memory agent.tools=[answer]",
    ],
)
def test_a_command_that_contradicts_itself_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="give one of them") as caught:
        compose("needle", text.split())
    for word in text.split()[:2]:
        assert word in str(caught.value)


def test_two_models_in_one_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("agent: {model_name_or_path: a/b}\nactor_rollout_ref: {model: {path: c/d}}\n")
    with pytest.raises(BadInput, match=r"model_name_or_path=a/b and actor_rollout_ref\.model\.path=c/d"):
        compose(str(file), [])


def test_init_args_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("agent: {max_turns: 3, init_args: {agent_type: hf, tools: [calculator], reward_name: f1}}\n")
    cfg = compose(str(file), ["agent.init_args.reward_name=em"])
    assert (cfg.agent.agent_type, cfg.agent.tools, cfg.agent.max_turns) == ("hf", ["calculator"], 3)
    assert cfg.agent.reward_name == "em"
    for text, said in (
        ("agent: {reward_name: em, init_args: {reward_name: f1}}", "the same key"),
        ("agent: {init_args: {reward_nam: f1}}", "unknown key agent.reward_nam; the nearest known: agent.reward_name"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=said):
            compose(str(file), [])
    with pytest.raises(BadInput, match=r"nearest known: agent\.reward_name"):
        compose("needle", ["agent.init_args.reward_nam=em"])


def test_a_command_with_data_of_its_own_starts_from_plain_defaults() -> None:
    mine, needle = compose(None, ["data.train_files=x.json"]), compose(None, [])
    assert (mine.recurrent.memory.config.chunk_size, mine.recurrent.memory.config.style) == (5000, "instruct")
    assert (needle.recurrent.memory.config.chunk_size, needle.recurrent.memory.config.style) == (48, "plain")
    assert compose("needle", ["data.train_files=x.json"]).recurrent.memory.config.chunk_size == 48
    assert compose(None, ["data.train_files=[]"]) == needle


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([" trainer.seed=3"], ["trainer.seed=3"]),
        (["trainer.seed=3\\", "\\", " ", ""], ["trainer.seed=3"]),
        (["trainer.seed=3 \\"], ["trainer.seed=3"]),
        (["needle", "trainer.experiment_name=a b"], ["needle", "trainer.experiment_name=a b"]),
    ],
)
def test_what_a_line_break_leaves_behind_is_dropped(given: list[str], expected: list[str]) -> None:
    assert words(given) == expected


@pytest.mark.parametrize("value", ["[calculator]", "'[calculator]'", '"[calculator]"', "calculator", "[ calculator ]"])
def test_lists_in_quotes(value: str) -> None:
    assert compose("needle", ["agent.agent_type=hf", f"agent.tools={value}"]).agent.tools == ["calculator"]


# ---- secrets ----

SECRET = "sk-proj-abcdefghijklmnop1234567890"


@pytest.mark.parametrize(
    "text", [f"trainer.wandb_api_key={SECRET}", f"agent.api_key={SECRET}", f"~x.y={SECRET}", f"openai.key='{SECRET}'"]
)
def test_the_value_of_an_unknown_key_is_not_repeated(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose("needle", [text])
    assert SECRET not in str(caught.value)
    assert text.partition("=")[0].lstrip("~") in str(caught.value)


def test_values_do_not_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    file = tmp_path / "env.yaml"
    file.write_text("trainer: {experiment_name: '${oc.env:WANDB_API_KEY}'}\n")
    for recipe, said in (("needle", ["trainer.experiment_name=${oc.env:WANDB_API_KEY}"]), (str(file), [])):
        with pytest.raises(BadInput, match="environment") as caught:
            compose(recipe, said)
        assert SECRET not in str(caught.value)
    assert SECRET not in to_yaml(compose("needle", []))


def test_messages_do_not_hold_keys() -> None:
    assert SECRET not in redacted(f"no recipe {SECRET} here")
    assert "f" * 40 not in redacted(f"WANDB {'f' * 40}")
    kept = "no model folder at hub/snapshots/" + "a" * 40 + "/x and runs/sk-1"
    assert redacted(kept) == kept
