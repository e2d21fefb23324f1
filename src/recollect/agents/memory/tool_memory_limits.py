"""What the agent ``tool_memory`` takes: its sections, its tokens, and whether they fit the model's window."""

from __future__ import annotations

from recollect.agents.memory.section_sizes import section_sizes
from recollect.agents.memory.tool_prompts import MEMORY_PROMPTS, question_prompt, read_prompt, shown_state
from recollect.agents.memory.tools_by_phase import toolbox
from recollect.chat import Renderer
from recollect.chat.schemas import as_text
from recollect.config import Config
from recollect.data.questions import questions_of
from recollect.types import Message, Task


def section_limit(cfg: Config) -> tuple[str, int]:
    """The key and value of the longest section."""
    return "memory.chunk_size", cfg.memory.chunk_size


def budget_of(cfg: Config) -> int:
    """Tokens that a memory may hold."""
    assert cfg.memory.budget is not None, "config/aliases.py writes it down"
    return cfg.memory.budget


def embeds(cfg: Config) -> str:
    """The setting that asks for an embedding model; empty where none does."""
    return f"memory.search=[{','.join(cfg.memory.search)}]" if "embedding" in cfg.memory.search else ""


def trajectory_tokens(cfg: Config, task: Task, renderer: Renderer) -> tuple[int, int, int, int]:
    """Turns, prompt tokens, response tokens and the longest turn of one trajectory.

    At most: every conversation takes all of its turns, and shows as much of the memory as it may.
    """
    limits, said = cfg.memory, cfg.data.max_response_length
    chunks = section_sizes(task, renderer, limits.chunk_size, limits.split, limits.max_chunks)
    questions = len(questions_of(task))
    frame, answer = first_prompts(cfg, renderer, task.question)
    frame -= limits.chunk_size
    reads, asks = limits.max_turns or cfg.agent.max_turns, cfg.agent.max_turns
    growing = lambda first, turns: turns * first + said * turns * (turns - 1) // 2
    prompt = sum(growing(frame + size, reads) for size in chunks) + questions * growing(answer, asks)
    turns = len(chunks) * reads + questions * asks
    longest = max(frame + max(chunks, default=0) + reads * said, answer + asks * said)
    return turns, prompt, turns * said, longest


def first_prompts(cfg: Config, renderer: Renderer, question: str) -> tuple[int, int]:
    """Tokens of the first prompt of a conversation that reads a full chunk, and of one that answers, at most."""
    limits = cfg.memory
    state = shown_state("", "", 9999, budget_of(cfg), budget_of(cfg))
    system = MEMORY_PROMPTS[limits.style].system or cfg.agent.system_prompt or ""
    shown = limits.core_length + limits.titles_length
    sizes = []
    for phase, text in (
        ("memory", read_prompt(limits.style, "", state)),
        ("qa", question_prompt(limits.style, question, state)),
    ):
        schemas = toolbox(phase, tuple(limits.search)).schemas if system else []
        messages = [Message("system", f"{system}\n{as_text(schemas)}")] if system else []
        sizes.append(len(renderer.prompt([*messages, Message("user", text)])) + shown)
    return sizes[0] + limits.chunk_size, sizes[1]


def window_problem(cfg: Config, renderer: Renderer, window: int, question: str, role: str = "") -> str:
    """The message when a first prompt and a turn do not fit the window; empty when they fit."""
    said = cfg.agent.max_tokens_per_turn or cfg.data.max_response_length
    room = min(window, cfg.agent.max_context_length or window)
    if cfg.data.made_up == "ledger" and not (cfg.data.train_files or cfg.data.val_files):
        return ""  # its books come in short chunks of their own
    reading, answering = first_prompts(cfg, renderer, question)
    need = max(reading, answering) + said
    if need <= room:
        return ""
    return (
        f"the model's window of {room} tokens is too small: {reading} tokens to read a chunk of memory.chunk_size="
        f"{cfg.memory.chunk_size} (or {answering} to answer) + {said} of a turn = {need}; lower memory.chunk_size, "
        "core_length or titles_length"
    )
