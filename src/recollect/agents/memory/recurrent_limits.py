"""What the agent ``recurrent`` takes: its sections, its tokens, and whether they fit the model's window."""

from __future__ import annotations

from recollect.agents.first_prompt import cut_text, too_many
from recollect.agents.memory.recurrent_prompts import ANSWER, EMPTY_MEMORY, READ
from recollect.agents.memory.section_sizes import section_sizes
from recollect.agents.wording import worded
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.prompt_file import wording
from recollect.registries import PromptSpec
from recollect.types import Task

KEY = "recurrent.memory.config"


def section_limit(cfg: Config) -> tuple[str, int]:
    """The key and value of the longest section."""
    return f"{KEY}.chunk_size", cfg.recurrent.memory.config.chunk_size


def longest_completion(cfg: Config) -> int:
    """Tokens of the longest memory or answer."""
    limits = cfg.recurrent.memory.config
    return max(limits.max_memorization_length, limits.max_final_response_length)


def trajectory_tokens(cfg: Config, task: Task, renderer: Renderer) -> tuple[int, int, int, int]:
    """Turns, prompt tokens, response tokens and the longest turn of one trajectory, at most."""
    limits = cfg.recurrent.memory.config
    chunks = section_sizes(task, renderer, limits.chunk_size, limits.split, limits.max_chunks)
    update = frame_tokens(cfg, renderer, READ, task.question)
    answer = frame_tokens(cfg, renderer, ANSWER, task.question) + limits.max_memorization_length
    memories = max(0, len(chunks) - 1) * limits.max_memorization_length
    response = len(chunks) * limits.max_memorization_length + limits.max_final_response_length
    longest = max(
        update + max(chunks, default=0) + 2 * limits.max_memorization_length, answer + limits.max_final_response_length
    )
    return len(chunks) + 1, len(chunks) * update + sum(chunks) + memories + answer, response, longest


def frame_tokens(cfg: Config, renderer: Renderer, prompt: PromptSpec, question: str) -> int:
    """Tokens of a prompt without a section and without a memory; its demonstrations count."""
    shown = {"question": question, "section": "", "memory": EMPTY_MEMORY}
    return len(renderer.prompt(worded(wording(cfg, prompt), shown)))


def window_problem(cfg: Config, renderer: Renderer, window: int, question: str, role: str = "") -> str:
    """The message when a turn does not fit the window; empty when every turn of the role, or of both roles, fits."""
    limits = cfg.recurrent.memory.config
    memory = limits.max_memorization_length
    if len(renderer.encode(question)) > limits.max_prompt_length:
        if cfg.data.truncation == "error":
            return too_many(question, renderer, limits.max_prompt_length)
        question = cut_text(question, renderer, limits.max_prompt_length, cfg.data.truncation)
    of = f" of {cfg.agent.prompts}" if cfg.agent.prompts else ""
    frame = frame_tokens(cfg, renderer, READ, question)
    need = frame + limits.chunk_size + 2 * memory
    if need > window and role != "qa":
        return (
            f"the model's window of {window} tokens is too small: question and frame{of} {frame} + chunk_size "
            f"{limits.chunk_size} + memory {memory} + new memory {memory} = {need}; "
            f"lower {KEY}.chunk_size or max_memorization_length"
        )
    frame = frame_tokens(cfg, renderer, ANSWER, question)
    need = frame + memory + limits.max_final_response_length
    if need > window and role != "memory":
        return (
            f"the model's window of {window} tokens is too small for the answer turn: question and frame{of} {frame} + "
            f"memory {memory} + answer {limits.max_final_response_length} = {need}"
        )
    return ""
