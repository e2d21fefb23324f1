"""How much of the model's window an agent needs, known before anything is sampled."""

from __future__ import annotations

from recollect.agents.first_prompt import first_messages, window_problem
from recollect.chat import Renderer
from recollect.config import Config
from recollect.gui.on_screen import check_environment
from recollect.registries import AGENTS
from recollect.types import BadInput, Task


def check_window(cfg: Config, renderer: Renderer, window: int, longest_question: str, role: str = "") -> None:
    """Refuse limits that cannot fit the model's window, with the numbers; of one role, or of all."""
    spec = AGENTS.of(cfg.agent.agent_type)
    if spec is None:
        return
    if spec.sees and renderer.patches is None:
        raise BadInput(
            f"agent.agent_type={cfg.agent.agent_type} shows its model images, and this one reads text alone; name "
            "a model that sees (docs/vision.md)"
        )
    if cfg.agent.agent_type == "gui":
        check_environment(cfg)
    problem = window_problem(cfg, renderer, window, longest_question) if spec.asks_first else ""
    if not problem and spec.window_problem is not None:
        problem = spec.window_problem(cfg, renderer, window, longest_question, role)
    if problem:
        raise BadInput(problem)


def longest_completion(cfg: Config) -> int:
    """Tokens that a completion may have at most."""
    spec = AGENTS.of(cfg.agent.agent_type)
    return spec.longest_completion(cfg) if spec and spec.longest_completion else cfg.data.max_response_length


def trajectory_tokens(cfg: Config, task: Task, renderer: Renderer) -> tuple[int, int, int, int]:
    """Turns, prompt tokens, response tokens and the longest turn of one trajectory, at most."""
    spec = AGENTS.of(cfg.agent.agent_type)
    if spec and spec.tokens:
        return spec.tokens(cfg, task, renderer)
    turns = cfg.agent.max_turns if spec and spec.uses_tools and not spec.reads_document else 1
    first = min(len(renderer.prompt(first_messages(task, cfg))), cfg.data.max_prompt_length)
    said = cfg.data.max_response_length
    return turns, turns * first + said * turns * (turns - 1) // 2, turns * said, first + turns * said
