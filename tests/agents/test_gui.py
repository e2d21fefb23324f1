"""The agent `gui`: screenshots and actions in turn, bounded, with the last screenshots in its prompts."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.compose import compose
from recollect.domains.families import expert_policy, made_up
from recollect.gui.action_syntax import SYNTAXES, Frame
from recollect.gui.environment import GuiAction
from recollect.gui.screen_row import read_screen
from recollect.images.image_ids import spans
from recollect.models.load import load_renderer
from recollect.packing.samples import trajectory_samples
from recollect.policies.scripted import Expert
from recollect.tasks.clickers import read_aloud
from recollect.tasks.screens import imitated_task, labels
from recollect.training.sft.expert import ExpertBatches
from recollect.types import BadInput, Completion, Message, Sampling, Task, Trajectory

BASE = ["agent.agent_type=gui", "data.made_up=screen", "agent.max_turns=4", "agent.reward_name=gui_goal"]
BASE += ["agent.max_tokens_per_turn=300"]


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return load_renderer("scratch_vision")


def config(*more: str) -> Config:
    return compose(None, [*BASE, *more])


def play(cfg: Config, renderer: Renderer, policy: Any, count: int = 6) -> list[Trajectory]:
    collector = Collector(cfg, {"*": Binding(policy, renderer)})
    tasks = [made_up(cfg).train(cfg, 0, i) for i in range(count)]
    groups = asyncio.run(collector.collect(tasks, 1, Sampling(max_tokens=300), "test"))
    return [t for g in groups for t in g.trajectories]


@pytest.mark.parametrize("syntax", ["ui_tars", "qwen"])
@pytest.mark.parametrize("coordinates", ["pixels", "thousandths"])
def test_the_clicker_succeeds_in_every_syntax_and_scale(syntax: str, coordinates: str, renderer: Renderer) -> None:
    cfg = config(f"gui.syntax={syntax}", f"gui.coordinates={coordinates}", "data.screen.goals=[press,tick,fill,pick]")
    cfg.data.screen.scale = 2
    player = expert_policy(made_up(cfg), renderer)
    made = play(cfg, renderer, player, 10)
    assert [t.failure for t in made] == [None] * 10
    assert all(t.success and t.stop == "goal" and t.reward == 1.0 and t.world is None for t in made)
    for t in made:
        (sample,) = trajectory_samples(t, 0, 0, supervised=True)  # the conversation only grows
        assert len(list(spans(sample.ids))) == len(t.turns)
        assert len(sample.images) == len(t.turns)


def test_what_is_imitated_reads_screens_aloud_in_part(renderer: Renderer) -> None:
    cfg = config(
        "data.screen.reading=0.5", "data.screen.goals=[press,pick]", "data.screen.scale=2", "sft.batch_size=24"
    )
    said = [renderer.decode(s.ids[s.mask].tolist()) for i in range(2) for s in ExpertBatches(cfg, renderer)[i]]
    aloud = [text for text in said if text.endswith("Action: finished()")]
    assert 12 < len(aloud) < 36
    for text in aloud:
        lines = re.findall(r" ([A-Z]{2}) (\d+),(\d+)", text.split("\n")[0])
        assert {label for label, _, _ in lines} <= set(labels("train"))
        assert len(lines) == len(set(lines)) > 0
    assert all(re.match(r"Thought: [A-Z]{2} (\d+,\d+|none)\nAction: (click|scroll)", t) for t in said if t not in aloud)


def test_what_is_read_aloud_is_where_it_says() -> None:
    cfg = config("data.screen.reading=1", "data.screen.goals=[press,tick,fill,pick]")
    task = imitated_task(cfg, 0, 5)
    screen = read_screen(task.fields["screen"])
    assert (task.question, screen.is_reached) == ("Read", True)
    words = read_aloud(screen, lambda point: (int(point[0]), int(point[1])), "s").split(" ")
    for label, place in zip(words[::2], words[1::2], strict=True):
        x, y = map(int, place.split(","))
        widget, line = screen.at((x, y))
        assert widget is not None
        assert widget.written[line] == label
    assert len(words) == 2 * sum(len(w.written) for w in screen.widgets)


def test_the_sloppy_clicker_looks_for_anything(renderer: Renderer) -> None:
    cfg = config("data.screen.goals=[press,fill,pick]", "agent.max_turns=6")
    made = play(cfg, renderer, expert_policy(made_up(cfg), renderer, sloppy=True), 80)
    assert 0.1 < sum(t.reward for t in made) / len(made) < 0.5
    assert {a.outcome for t in made for a in t.actions} == {"ok"}
    assert {a.tool for t in made for a in t.actions} == {"click", "scroll", "type"}


def says(renderer: Renderer, *texts: str) -> Expert:
    return Expert(renderer, lambda task, trajectory: texts[len(trajectory.turns) % len(texts)])


def test_old_screenshots_leave_the_prompt_and_nothing_else_does(renderer: Renderer) -> None:
    cfg = config("gui.history=2", "agent.max_turns=5")
    (made,) = play(cfg, renderer, says(renderer, "Action: wait()"), 1)
    assert (made.stop, made.success, made.reward) == ("max_turns", False, 0.0)
    counts = [len(list(spans(np.array(turn.prompt_ids)))) for turn in made.turns]
    assert counts == [1, 2, 2, 2, 2]
    assert [len(turn.images) for turn in made.turns] == counts
    assert renderer.decode(made.turns[4].prompt_ids).count("assistant\nAction: wait()") == 4


TRIED = ("Action: type(content='A')", "Action: finished(content='x')")


def test_what_cannot_be_read_is_told_and_counted(renderer: Renderer) -> None:
    cfg = config("agent.reward_name=[gui_goal*0.5,gui_format*0.5]")
    (made,) = play(cfg, renderer, says(renderer, "Hm.", *TRIED), 1)
    assert [(a.tool, a.outcome) for a in made.actions] == [
        ("gui", "malformed"),
        ("type", "exception"),
        ("finished", "ok"),
    ]
    assert "there is no action" in renderer.decode(made.turns[1].prompt_ids)
    assert "there is no field" in renderer.decode(made.turns[2].prompt_ids)
    assert (made.stop, made.answer) == ("answered", "x")
    assert made.reward == pytest.approx(0.5 * 2 / 3)


def test_a_context_that_is_full_ends_the_attempt(renderer: Renderer) -> None:
    cfg = config("agent.max_context_length=120", "agent.max_tokens_per_turn=40", "agent.system_prompt=''")
    (made,) = play(cfg, renderer, says(renderer, "Action: wait()"), 1)
    assert made.stop == "context_full"
    assert 0 < len(made.turns) < 4


def test_a_first_prompt_that_does_not_fit_is_said(renderer: Renderer) -> None:
    cfg = config("agent.max_context_length=60", "agent.max_tokens_per_turn=40")
    (made,) = play(cfg, renderer, says(renderer, "Action: wait()"), 1)
    assert made.failure is not None
    assert "tokens, its screenshot included, and with 40 for an action only 60 fit the context" in made.failure.message


def test_an_action_without_a_place_is_where_the_pointer_is(renderer: Renderer) -> None:
    cfg = config("gui.syntax=qwen", "data.screen.goals=[tick]")
    task = made_up(cfg).train(cfg, 0, 1)
    write, screen = SYNTAXES["qwen"].write, read_screen(task.fields["screen"])
    there = GuiAction("move", screen.centre(screen.wanted[0]))
    move, click = (
        write(there, Frame(*screen.size, screen.size)),
        '{"name": "computer_use", "arguments": {"action": "left_click"}}',
    )
    policy = says(renderer, move, f"<tool_call>{click}</tool_call>")
    collector = Collector(cfg, {"*": Binding(policy, renderer)})
    (group,) = asyncio.run(collector.collect([task], 1, Sampling(max_tokens=300), "test"))
    (made,) = group.trajectories
    assert [a.tool for a in made.actions] == ["move", "click"]
    assert (made.stop, made.success) == ("goal", True)


def test_an_endpoint_is_shown_the_pictures(renderer: Renderer) -> None:
    asked: list[Any] = []

    class Server:
        version = -1

        async def chat(self, log: Any, tools: Any, sampling: Sampling) -> Completion:
            from recollect.policies.openai_messages import as_messages

            asked.append(as_messages(log))
            return Completion((), (), "stop", -1, "Action: wait()", {"role": "assistant", "content": "Action: wait()"})

    blind = Renderer(renderer.tokenizer).for_counting()
    (made,) = play(config("gui.history=1", "agent.max_turns=2"), blind, Server(), 1)
    assert made.failure is None
    first, second = asked
    assert [part["type"] for part in first[-1]["content"]] == ["text", "image_url"]
    assert first[-1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert second[1]["content"] == f"{first[-1]['content'][0]['text']}"
    assert second[-1]["content"][0]["type"] == "image_url"


def test_a_model_that_reads_text_alone_is_refused() -> None:
    from recollect.agents.window import check_window

    with pytest.raises(BadInput, match="shows its model images, and this one reads text alone"):
        check_window(config(), load_renderer("tiny"), 4096, "")


def test_an_environment_that_there_is_not(renderer: Renderer) -> None:
    from recollect.agents.window import check_window

    with pytest.raises(BadInput, match=r"gui.environment=screeen"):
        check_window(config("gui.environment=screeen"), renderer, 4096, "")


def test_a_task_without_a_screen_is_a_failure(renderer: Renderer) -> None:
    collector = Collector(config(), {"*": Binding(says(renderer, "x"), renderer)})
    (group,) = asyncio.run(collector.collect([Task("t", "q")], 1, Sampling(), "test"))
    assert "describes no screen" in str(group.trajectories[0].failure)
    assert Message("user", "q").images == ()
