"""What the agent ``conversation_qa`` takes: its tokens, its embedding model, and whether it fits the model's window."""

from __future__ import annotations

from recollect.agents.memory import tool_memory_limits
from recollect.agents.memory.conversation_prompts import read_session_prompt, recall_prompt
from recollect.agents.memory.section_sizes import section_sizes
from recollect.agents.memory.tool_memory_limits import budget_of
from recollect.chat import Renderer
from recollect.config import Config
from recollect.data.questions import questions_of
from recollect.types import Task

SEARCHED = ("turns", "sessions", "observations")
LEAST = 64  # tokens of a session that a prompt has room for at least


def embeds(cfg: Config) -> str:
    """The setting that asks for an embedding model; empty where none does."""
    limits = cfg.conversation
    if limits.memory == "notes":
        return tool_memory_limits.embeds(cfg)
    needed = limits.memory in SEARCHED and limits.method != "bm25"
    return f"conversation.method={limits.method}" if needed else ""


def task_problem(cfg: Config, task: Task) -> str:
    """What is said about a task that lacks what is to be remembered; empty where all is there."""
    lacks = cfg.conversation.memory == "observations" and not task.fields.get("observations")
    return "conversation.memory=observations, and the data has no `observations`" if lacks else ""


def text_limits(cfg: Config, renderer: Renderer) -> tuple[int, int]:
    """Tokens of the text that ``recurrent`` writes, and of a session that a prompt shows beside it."""
    most = min(budget_of(cfg), cfg.data.max_response_length)
    frame = len(renderer.prompt(read_session_prompt(cfg, "", "", most)))
    return most, min(cfg.memory.chunk_size, cfg.data.max_prompt_length - frame - most)


def trajectory_tokens(cfg: Config, task: Task, renderer: Renderer) -> tuple[int, int, int, int]:
    """Turns, prompt tokens, response tokens and the longest turn of one trajectory, at most."""
    if cfg.conversation.memory == "notes":
        return tool_memory_limits.trajectory_tokens(cfg, task, renderer)
    prompt, said = cfg.data.max_prompt_length, cfg.data.max_response_length
    reads = 0
    if cfg.conversation.memory == "recurrent":
        _, size = text_limits(cfg, renderer)
        reads = len(section_sizes(task, renderer, max(1, size), cfg.memory.split, 0))
    turns = reads + len(questions_of(task))
    return turns, turns * prompt, turns * said, prompt + said


def window_problem(cfg: Config, renderer: Renderer, window: int, question: str, role: str = "") -> str:
    """What is said when a turn does not fit the window, or a prompt has no room; empty when all do."""
    if cfg.conversation.memory == "notes":
        return tool_memory_limits.window_problem(cfg, renderer, window, question, role)
    said = cfg.data.max_response_length
    of = f" of {cfg.agent.prompts}" if cfg.agent.prompts else ""
    frame = len(renderer.prompt(recall_prompt(cfg, question, "")))
    if frame + LEAST > min(cfg.data.max_prompt_length, window - said):
        return (
            f"the model's window of {window} tokens is too small: question and frame{of} {frame} + memory {LEAST} at "
            f"least + data.max_response_length {said}; lower data.max_response_length, or raise data.max_prompt_length="
            f"{cfg.data.max_prompt_length}"
        )
    if cfg.conversation.memory != "recurrent" or role == "qa":
        return ""
    most, size = text_limits(cfg, renderer)
    if size < LEAST or size + 2 * most + frame > window:
        return (
            f"the model's window of {window} tokens, or data.max_prompt_length={cfg.data.max_prompt_length}, is too "
            f"small to read a session of {max(size, LEAST)} tokens beside a memory of {most}; lower memory.budget, "
            "memory.chunk_size or data.max_response_length"
        )
    return ""
