"""Whether an agent's prompts and completions fit the model's window, known before anything is sampled."""

from __future__ import annotations

from recollect.agents.first_prompt import cut_text, too_many, window_problem
from recollect.agents.memory.recurrent_prompts import answer_prompt, update_prompt
from recollect.agents.memory.window import memory_problem
from recollect.chat import Renderer
from recollect.config import Config
from recollect.registries import AGENTS
from recollect.types import BadInput, Message


def check_window(cfg: Config, renderer: Renderer, window: int, longest_question: str, role: str = "") -> None:
    """Refuse limits that cannot fit the model's window, with the numbers; of one role, or of all."""
    if AGENTS.knows(cfg.agent.agent_type, "asks_first") and (
        problem := window_problem(cfg, renderer, window, longest_question)
    ):
        raise BadInput(problem)
    if cfg.agent.agent_type == "tool_memory" and (problem := memory_problem(cfg, renderer, window, longest_question)):
        raise BadInput(problem)
    if cfg.agent.agent_type != "recurrent":
        return
    limits = cfg.recurrent.memory.config
    key, memory = "recurrent.memory.config", limits.max_memorization_length
    if len(renderer.encode(longest_question)) > limits.max_prompt_length:
        if cfg.data.truncation == "error":
            raise BadInput(too_many(longest_question, renderer, limits.max_prompt_length))
        longest_question = cut_text(longest_question, renderer, limits.max_prompt_length, cfg.data.truncation)
    text = update_prompt(limits.style, limits.layout, longest_question, "", "")
    frame = len(renderer.prompt([Message("user", text)]))
    need = frame + limits.chunk_size + 2 * memory
    if need > window and role != "qa":
        raise BadInput(
            f"the model's window of {window} tokens is too small: question and frame {frame} + chunk_size "
            f"{limits.chunk_size} + memory {memory} + new memory {memory} = {need}; "
            f"lower {key}.chunk_size or max_memorization_length"
        )
    frame = len(renderer.prompt([Message("user", answer_prompt(limits.style, longest_question, ""))]))
    need = frame + memory + limits.max_final_response_length
    if need > window and role != "memory":
        raise BadInput(
            f"the model's window of {window} tokens is too small for the answer turn: question and frame {frame} + "
            f"memory {memory} + answer {limits.max_final_response_length} = {need}"
        )
