"""Recipes and overrides: everything takes effect or is refused with one helpful line."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.config import Config
from recollect.config.aliases import resolve
from recollect.config.compose import (
    compose,
    differing,
    flatten,
    from_yaml,
    known_keys,
    read_recipe,
    recipe_names,
    to_yaml,
)
from recollect.config.rules import checked
from recollect.types import BadInput
from tests.waiting import cost


def value(cfg: Any, key: str) -> Any:
    for part in key.split("."):
        cfg = getattr(cfg, part)
    return cfg


MEMORY = "recurrent.memory.config"
ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("trainer.seed=3", "trainer.seed", 3),
        ("+trainer.seed=3", "trainer.seed", 3),
        ("++trainer.seed=3", "trainer.seed", 3),
        ("trainer.val_before_train=False", "trainer.val_before_train", False),
        ("trainer.val_before_train=true", "trainer.val_before_train", True),
        (f"{ACTOR}.optim.lr=1e-6", f"{ACTOR}.optim.lr", 1e-6),
        (f"{ACTOR}.optim.lr=1", f"{ACTOR}.optim.lr", 1.0),
        (f"{ACTOR}.clip_ratio_high=0.28", f"{ACTOR}.clip_ratio_high", 0.28),
        (f"{ACTOR}.clip_ratio_high=null", f"{ACTOR}.clip_ratio_high", None),
        ("evaluation.lengths=[1,2,4,8,16]", "evaluation.lengths", [1, 2, 4, 8, 16]),
        ("data.train_files=a.json", "data.train_files", ["a.json"]),
        ("data.train_files=[a.json,'b c.json',\"d,e.json\"]", "data.train_files", ["a.json", "b c.json", "d,e.json"]),
        ("data.train_files=[]", "data.train_files", []),
        ("data.train_files=/data/my files/a.json", "data.train_files", ["/data/my files/a.json"]),
        ("trainer.experiment_name='two words'", "trainer.experiment_name", "two words"),
        ('trainer.experiment_name="two words"', "trainer.experiment_name", "two words"),
        ("trainer.experiment_name=two words", "trainer.experiment_name", "two words"),
        ("trainer.experiment_name=a=b", "trainer.experiment_name", "a=b"),
        ("trainer.experiment_name=123", "trainer.experiment_name", "123"),
        ("trainer.experiment_name=", "trainer.experiment_name", ""),
        ("trainer.experiment_name='1,2'", "trainer.experiment_name", "1,2"),
        ("agent.reward_name=my/file.py:reward", "agent.reward_name", "my/file.py:reward"),
        ("agent.reward_name=package.module:reward", "agent.reward_name", "package.module:reward"),
        ("actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B", "actor_rollout_ref.model.path", "Qwen/Qwen2.5-0.5B"),
    ],
)
def test_overrides(text: str, key: str, expected: Any) -> None:
    found = value(compose("needle", [text]), key)
    assert found == expected
    assert type(found) is type(expected)


def test_the_last_override_wins() -> None:
    assert compose("needle", ["trainer.seed=1", "trainer.seed=2"]).trainer.seed == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trainer.sed=3", "unknown key trainer.sed; the nearest known: trainer.seed"),
        ("+trainer.sede=3", "trainer.seed"),
        ("seed=3", "unknown key seed; the nearest known: trainer.seed"),
        ("actor_rollout_ref.rollout.nn=3", "actor_rollout_ref.rollout.n"),
        ("actor.optim.lr=3", "optim.lr"),
        ("qqqq.zzzz=3", "unknown key qqqq.zzzz"),
        ("trainer=3", "unknown key trainer"),
        ("needle", "'needle' is not key=value; a recipe stands before all settings"),
        ("--quiet", "is not key=value"),
        ("trainer.seed=abc", "trainer.seed=abc"),
        ("trainer.seed=1.5", "trainer.seed=1.5"),
        ("trainer.seed=null", "trainer.seed"),
        ("trainer.seed=[1]", "trainer.seed"),
        ("trainer.val_before_train=maybe", "trainer.val_before_train=maybe"),
        ("evaluation.lengths=[1,x]", "evaluation.lengths"),
        ("trainer.experiment_name=null", "trainer.experiment_name"),
        (f"{ACTOR}.optim.lr=fast", f"{ACTOR}.optim.lr=fast"),
        ("trainer.seed=1,2", "trainer.seed"),
        ("trainer.experiment_name=a,b", "trainer.experiment_name"),  # Hydra's sweeps have no meaning here
        ("data.train_files=a.json,b.json", "data.train_files"),
        ("~trainer.seed=3", "~trainer.seed"),  # nor has deletion
        ("trainer.experiment_name=${nope}", "nope"),
        ("trainer.seed=???", "trainer.seed"),
        ("data.train_files=[a,{b:1}]", "data.train_files=['a', {'b': 1}]: {'b': 1} is no plain value"),
    ],
)
def test_overrides_that_cannot_work(text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose("needle", [text])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Sweep(" not in str(caught.value)


def test_every_shipped_recipe_composes() -> None:
    assert {"needle", "needle_base"} <= set(recipe_names())
    for name in recipe_names():
        cfg = compose(name, ["search.corpus=corpus.jsonl"] if name == "squad_search" else [])
        assert isinstance(cfg, Config)
        assert read_recipe(name)["description"].strip()
    assert compose(None, []) == compose("needle", [])
    assert compose("needle", []).recurrent.memory.config.split == "sentence"


def test_recipes_that_cannot_be_read(tmp_path: Path) -> None:
    cases = {
        "text.yaml": ("a: [1", "is not YAML"),
        "list.yaml": ("- 1\n- 2\n", "a recipe is a mapping"),
        "unknown.yaml": ("trainer: {sed: 3}\n", "unknown key trainer.sed; the nearest known: trainer.seed"),
        "type.yaml": ("trainer: {seed: three}\n", "type.yaml: trainer.seed=three: Value 'three'"),
        "item.yaml": ("data: {train_files: [a, {b: 1}]}\n", "item.yaml: data.train_files=['a', {'b': 1}]: "),
        "whole.yaml": ("evaluation: {lengths: [1, x]}\n", "whole.yaml: evaluation.lengths=[1, 'x']: "),
        "missing.yaml": ("trainer: {seed: '???'}\n", "missing.yaml: trainer.seed=???: give it a value"),
        "variants.yaml": ("variants: 5\n", "variants.yaml: variants=5 names no choices"),
        "choices.yaml": ("variants: {size: {a: 5}}\n", "choices.yaml: variants.size={'a': 5} names no choices"),
        "null.yaml": ("trainer: {seed: null}\n", "null.yaml: trainer.seed=None: "),
        "value.yaml": ("trainer: {device: abacus}\n", "trainer.device=abacus is unknown; known: auto, cpu, cuda"),
    }
    for name, (text, words) in cases.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(BadInput) as caught:
            compose(str(tmp_path / name), [])
        assert words in str(caught.value), name
    with pytest.raises(BadInput, match=r"no recipe needel; did you mean needle\? Known: .*, or a YAML file"):
        compose("needel", [])
    with pytest.raises(BadInput, match=r"no recipe xyzzy; known: .*needle_base"):
        compose("xyzzy", [])
    with pytest.raises(BadInput, match=r"^foo\.yaml: there is no such file$"):
        compose("foo.yaml", [])
    with pytest.raises(BadInput, match="no recipe"):
        compose(str(tmp_path), [])


def test_a_broken_stored_configuration_is_called_that() -> None:
    with pytest.raises(BadInput, match=r"^the stored configuration: trainer\.seed=abc: "):
        from_yaml("trainer: {seed: abc}\n")


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\ntrainer: {seed: 5}\ndata:\n  train_files: [x.json]\n")
    cfg = compose(str(path), ["trainer.threads=2"])
    assert (cfg.trainer.seed, cfg.trainer.threads, cfg.data.train_files) == (5, 2, ["x.json"])
    path.write_text("agent: {agent_type: hf, tools: calculator}\ntrainer: {logger: jsonl}\n")  # one is a list of one
    cfg = compose(str(path), [])
    assert (cfg.agent.tools, cfg.trainer.logger) == (["calculator"], ["jsonl"])
    (tmp_path / "empty.yaml").write_text("")
    assert compose(str(tmp_path / "empty.yaml"), []) == resolve(Config())


VARIANTS = {
    "trainer": {"seed": 1},
    "variants": {
        "size": {"small": {"trainer": {"seed": 2}}, "large": {"trainer": {"seed": 3, "threads": 4}}, "same": None},
        "hops": {1: {"data": {"needle": {"hops": 1}}}, 2: {"data": {"needle": {"hops": 2}}}},
        "bad": {"yes it is": {"trainer": {"sed": 1}}},
    },
}


def test_variants() -> None:
    made = lambda *overrides: compose(None, overrides, base=copy.deepcopy(VARIANTS)).trainer
    assert made().seed == 1
    assert made("size=small").seed == 2
    assert (made("size=large").seed, made("size=large").threads) == (3, 4)
    assert made("size=same").seed == 1
    assert made("trainer.seed=9", "size=large").seed == 9  # what the user says about a key wins, in any order
    with pytest.raises(BadInput, match="size=huge: known are small, large, same"):
        made("size=huge")
    with pytest.raises(BadInput, match=r"trainer\.seed"):
        made("bad='yes it is'")


def test_variants_may_be_named_by_numbers() -> None:
    assert compose(None, ["hops=2"], base=copy.deepcopy(VARIANTS)).data.needle.hops == 2


RULES = [
    ("recurrent.enable=nothing", "recurrent.enable=nothing is unknown"),
    (f"{MEMORY}.split=word", "known: token, sentence"),
    (f"{MEMORY}.layout=sideways", "known: chunk_first, memory_first"),
    (f"{MEMORY}.style=baroque", "known: instruct, plain"),
    ("algorithm.adv_estimator=magic", "known: gae, grpo, rloo"),
    (f"{ACTOR}.loss_agg_mode=seq-mean", "known: token-mean, seq-mean-token-sum"),
    (f"{ACTOR}.kl_loss_type=k9", "known: low_var_kl, kl, mse, abs"),
    (f"{ACTOR}.dtype=int8", f"{ACTOR}.dtype=int8"),
    ("actor_rollout_ref.rollout.name=tgi", "known: engine, vllm, sglang, trtllm, hf"),
    ("actor_rollout_ref.rollout.dtype=int8", "actor_rollout_ref.rollout.dtype=int8"),
    ("trainer.resume_mode=maybe", "known: auto, disable"),
    ("trainer.device=tpu", "known: auto, cpu, cuda"),
    ("sft.export_dtype=auto", "known: float32, bfloat16"),
    (f"{ACTOR}.optim.name=sgd", "known: adamw, muon"),
    ("sft.optim.name=sgd", "sft.optim.name=sgd"),
    (f"{ACTOR}.optim.lr_scheduler_type=step", "known: constant, linear, cosine"),
    ("sft.optim.lr_scheduler_type=step", "sft.optim.lr_scheduler_type=step"),
    (f"{ACTOR}.optim.lr=-1", "must not be negative"),
    ("sft.optim.lr=-1", "sft.optim.lr=-1.0 must not be negative"),
    (f"{MEMORY}.max_chunks=-1", f"{MEMORY}.max_chunks=-1 must not be negative"),
    ("data.needle.hops=3", "data.needle.hops=3 must be 1 or 2"),
    (f"{ACTOR}.ppo_mini_batch_size=33", "is larger than data.train_batch_size=32"),
    (f"{ACTOR}.ppo_mini_batch_size=-1", f"{ACTOR}.ppo_mini_batch_size=-1"),
    (f"{ACTOR}.ppo_mini_batch_size=5", "data.train_batch_size=32 is not a multiple"),
    ("evaluation.lengths=[1]", "evaluation.lengths and evaluation.tasks"),
    *[
        (f"{key}=0", f"{key}=0")
        for key in (
            *(f"{MEMORY}.{k}" for k in ("chunk_size", "max_prompt_length", "max_memorization_length")),
            f"{MEMORY}.max_final_response_length",
            *(f"actor_rollout_ref.rollout.{k}" for k in ("n", "max_num_seqs", "max_num_batched_tokens")),
            *("actor_rollout_ref.rollout.temperature", "actor_rollout_ref.rollout.val_kwargs.n"),
            *(f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ACTOR}.ppo_epochs"),
            "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu",
            *("data.train_batch_size", "data.max_response_length", "data.needle.chunks"),
            *("data.needle.facts_per_chunk", "data.needle.start_chunks", "agent.max_concurrency"),
            *("agent.timeout_s", "agent.reward_timeout_s", "sft.batch_size", "trainer.max_ckpt_to_keep"),
        )
    ],
]


@pytest.mark.parametrize(("text", "words"), RULES, ids=[r[0] for r in RULES])
def test_every_rule_fires(text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose("needle", [text])
    assert words in str(caught.value)


def test_the_rule_on_facts_names_the_value_that_was_given() -> None:
    with pytest.raises(BadInput, match=r"data\.needle\.facts_per_chunk=1 "):
        compose("needle", ["data.needle.hops=2", "data.needle.facts_per_chunk=1"])
    compose("needle", ["data.needle.hops=2", "data.needle.facts_per_chunk=2"])


CANNOT_WORK = [
    "evaluation.lengths=[1,4,0,64,256]",  # fails only after all of the training
    "evaluation.tasks=[256,0,8,8,8]",  # silently becomes 256
    "trainer.total_training_steps=-1",
    "actor_rollout_ref.rollout.temperature=nan",
    f"{ACTOR}.optim.lr=nan",
    "agent.timeout_s=nan",
    "actor_rollout_ref.rollout.top_p=0",
    "actor_rollout_ref.rollout.top_p=1.5",
    f"{ACTOR}.grad_clip=0",  # every update becomes zero
    f"{ACTOR}.optim.betas=[0.9]",
    f"{ACTOR}.clip_ratio=-0.1",
    "data.needle.similar=1.5",
]


@pytest.mark.parametrize("text", CANNOT_WORK)
def test_values_that_cannot_work_are_refused_at_the_start(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        compose("needle", [text])
    assert text.split("=")[0].rsplit(".", 1)[-1] in str(caught.value)


def test_the_defaults_pass_the_check() -> None:
    assert checked(Config()) == Config()


# ---- storing ----

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="$\ufeff"), max_size=12
)


ODD = ["on", "null", "1e3", "007", "0x1", "a: b", "- a", "#x", "~", "'", "2024-01-01", "", " ", "a,b", "\\", "漢 😀"]


@settings(max_examples=5, deadline=None)
@given(
    name=st.sampled_from(ODD),
    lr=st.floats(0, 1),
    files=st.lists(NAMES, min_size=20, max_size=30),
    low=st.none() | st.floats(0, 1),
)
def test_yaml_round_trip(name: str, lr: float, files: list[str], low: float | None) -> None:
    cfg = compose("needle", [])
    cfg.trainer.experiment_name, cfg.data.train_files = name, [*files, *ODD]
    cfg.actor_rollout_ref.actor.optim.lr, cfg.actor_rollout_ref.actor.clip_ratio_low = lr, low
    assert from_yaml(to_yaml(cfg)) == cfg
    assert differing(to_yaml(cfg), cfg, []) == ""


def test_a_stored_configuration_is_read_without_delay() -> None:
    """`eval`, `ask` and every resumed run read one; a command must not wait for it."""
    text = to_yaml(Config())
    compose(None, ["trainer.seed=1"])  # imports
    assert cost(lambda: from_yaml(text)) < 0.5


def test_differing_names_the_first_key_that_matters() -> None:
    cfg = compose("needle", [])
    stored = to_yaml(cfg)
    other = compose("needle", ["trainer.seed=4", "evaluation.lengths=[1,2,3,4,5]"])
    assert differing(stored, other, []) == "evaluation.lengths is [1, 4, 16, 64, 256] there and [1, 2, 3, 4, 5] here"
    assert differing(stored, other, ["evaluation."]) == "trainer.seed is 0 there and 4 here"
    assert differing(stored, other, ["evaluation.", "trainer.seed"]) == ""
    earlier = stored.replace("  threads: 0\n", "")  # of a version without the key, which is what its default is
    assert earlier != stored
    assert differing(earlier, cfg, []) == ""
    assert "trainer.threads is 0 there" in differing(earlier, compose("needle", ["trainer.threads=1"]), [])


def test_known_keys_are_the_leaves_of_the_tree() -> None:
    def leaves(kind: Any, prefix: str = "") -> list[str]:
        out = []
        for f in dataclasses.fields(kind):
            inner = getattr(kind(), f.name)
            out += leaves(type(inner), f"{prefix}{f.name}.") if dataclasses.is_dataclass(inner) else [prefix + f.name]
        return out

    assert sorted(known_keys()) == sorted(leaves(Config))
    assert flatten({}) == {}
