"""Every key of the other systems has an answer, and its default is taken or means what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.config.translate import translate
from recollect.config.translate.agent_keys import plain
from recollect.config.translate.key_answer import Alias, Refused
from recollect.config.translate.known_keys import ANSWERS, answer_of, own_keys
from recollect.config.translate.trees import SYSTEMS, tree
from recollect.config.translate.verl_reference import from_verl_markdown
from recollect.registries import AGENTS
from recollect.types import BadInput

PAGE = Path(__file__).parents[3] / "docs" / "from-verl.md"
COUNTS = {"verl": 1000, "verl_engines": 420, "verl_async": 18, "memagent": 205, "two_stage": 436, "agentfly": 50}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_list_is_whole(name: str) -> None:
    assert len(tree(name)) >= COUNTS[name]


def test_the_lists_hold_keys_that_scripts_use() -> None:
    assert tree("memagent")["actor_rollout_ref.actor.optim.lr"] == 1e-6
    assert tree("memagent")["recurrent.memory.config.max_chunks"] == 8
    assert tree("verl")["reward.custom_reward_function.name"] == "compute_score"
    assert tree("two_stage")["actor_rollout_ref.rollout.over_sample_rate"] == 0
    assert tree("agentfly")["agent.init_config.tool_parser_name"] == "hermes"


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_key_has_an_answer(name: str) -> None:
    """It is ours, another name for ours, refused with a reason, or taken with a note."""
    unanswered = [key for key in tree(name) if answer_of(plain(key)) is None and plain(key) not in own_keys()]
    assert unanswered == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_default_is_taken(name: str) -> None:
    """As a setting of ours, with a note, or for asking for nothing; never without a trace."""
    for key, value in tree(name).items():
        made = translate({plain(key): value})
        assert set(made.settings) <= own_keys(), key
        answer = answer_of(plain(key))
        silent = not (made.settings or made.lines())
        follows = value is None or str(value).startswith("${")
        assert not silent or follows or isinstance(answer, Alias), key


def test_every_answer_says_something() -> None:
    for key, answer in ANSWERS.items():
        if isinstance(answer, Alias):
            assert answer.to in own_keys(), key
            assert not answer.fact or AGENTS.those(answer.fact), key
        else:
            assert len(answer.why.split()) > 3, key
            assert not answer.why.endswith("."), key


def test_no_key_of_ours_is_refused_or_only_noted() -> None:
    assert [k for k in own_keys() if k in ANSWERS and not isinstance(ANSWERS[k], Alias)] == []


def test_every_refusal_fires() -> None:
    """A value that no system has by default and that is not said to be fine."""
    odd = "something-else"
    for key, answer in ANSWERS.items():
        if isinstance(answer, Refused):
            with pytest.raises(BadInput, match="something-else: "):
                translate({key.replace("*", "x"): odd})


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == from_verl_markdown(), (
        "run: python -m recollect.config.translate.verl_reference > docs/from-verl.md"
    )


def test_the_page_has_defaults_that_differ() -> None:
    page = from_verl_markdown()
    assert "| `algorithm.adv_estimator` | `gae` | `gae` | `gae` | `grpo` |" in page
    assert "| `actor_rollout_ref.actor.use_kl_loss` | `False` | `False` | `True` | `False` |" in page
    assert "`actor_rollout_ref.actor.optim.lr` | `1e-06` | `1e-06`" not in page  # it does not differ
