"""The wording of the recurrent memory agent's prompts."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.config import Config
from recollect.registries import PromptSpec

EMPTY_MEMORY = "none"


@dataclass(frozen=True)
class Prompts:
    """Templates with {question}, {section} and {memory}. Where the section stands first, all samples share it."""

    asked: str  # how an update shows the question; left out where it is not shown
    begin: str  # of an update, by whether the question is shown
    begin_blind: str
    chunk: str
    memory: str
    end: str  # of an update, likewise
    end_blind: str
    answer: str
    section: str  # a document, or what was found of it, and no memory

    def update(self, layout: str, aware: bool) -> str:
        """The template of a turn that reads a section; ``memory_first`` is MemAgent's order."""
        parts = [self.chunk, self.memory] if layout == "chunk_first" else [self.memory, self.chunk]
        if not aware:
            return self.begin_blind + "".join(parts).rstrip("\n") + self.end_blind
        return self.begin + self.asked + "".join(parts).rstrip("\n") + self.end


_READING = "You are reading a long document one section at a time"
_REWRITE = "\n\nRewrite the memory so that it keeps every earlier detail that may "
_NOTHING_ELSE = " and adds what this section contributes. Reply with the new memory and nothing else."

PROMPTS = {
    "plain": Prompts(
        asked="Question: {question}\n",
        begin="",
        begin_blind="",
        chunk="Section: {section}\n",
        memory="Memory: {memory}\n",
        end="",
        end_blind="",
        answer="Question: {question}\nMemory: {memory}\nAnswer:",
        section="Question: {question}\nSection: {section}\nAnswer:",
    ),
    "instruct": Prompts(
        asked="<question>\n{question}\n</question>\n\n",
        begin=_READING + " to answer a question.\n\n",
        begin_blind=_READING + ". Questions about it come when you have read it all.\n\n",
        chunk="<section>\n{section}\n</section>\n\n",
        memory="<memory>\n{memory}\n</memory>\n\n",
        end=_REWRITE + "help with the question" + _NOTHING_ELSE,
        end_blind=_REWRITE + "be asked about" + _NOTHING_ELSE,
        answer=(
            "Answer the question from the memory of a document you have read.\n\n"
            "<question>\n{question}\n</question>\n\n<memory>\n{memory}\n</memory>\n\n"
            "Think if you need to, then put the final answer in \\boxed{{}}."
        ),
        section=(
            "Answer the question from the document.\n\n"
            "<document>\n{section}\n</document>\n\n<question>\n{question}\n</question>\n\n"
            "Think if you need to, then put the final answer in \\boxed{{}}."
        ),
    ),
}


def update_prompt(style: str, layout: str, question: str | None, chunk: str, memory: str) -> str:
    """The prompt of a turn that reads a section; a question of None is not shown."""
    template = PROMPTS[style].update(layout, question is not None)
    return template.format(question=question, section=chunk, memory=memory or EMPTY_MEMORY)


def answer_prompt(style: str, question: str, memory: str) -> str:
    """The prompt of the turn that answers from the memory alone."""
    return PROMPTS[style].answer.format(question=question, memory=memory or EMPTY_MEMORY)


def section_prompt(style: str, question: str, text: str) -> str:
    """The prompt of a baseline, which answers from text and has no memory."""
    return PROMPTS[style].section.format(question=question, section=text)


def shown_parts(template: str) -> str:
    """The paragraphs of a template that show inputs."""
    return "\n\n".join(part for part in template.strip().split("\n\n") if _shows(part))


def told_parts(template: str) -> str:
    """The paragraphs of a template that show none: its instruction."""
    return "\n\n".join(part for part in template.strip().split("\n\n") if not _shows(part)).format()


def _shows(part: str) -> bool:
    return any(f"{{{name}}}" in part for name in ("question", "section", "memory"))


def read_template(cfg: Config) -> str:
    """The template of a turn that reads a section."""
    limits = cfg.recurrent.memory.config
    return PROMPTS[limits.style].update(limits.layout, limits.query_aware)


def answer_template(cfg: Config) -> str:
    """The template of the turn that answers."""
    return PROMPTS[cfg.recurrent.memory.config.style].answer


def read_inputs(cfg: Config) -> tuple[str, ...]:
    """What a turn that reads is shown."""
    aware = cfg.recurrent.memory.config.query_aware
    return ("question", "section", "memory") if aware else ("section", "memory")


READ = PromptSpec(
    "read",
    read_template,
    lambda cfg: told_parts(read_template(cfg)),
    lambda cfg: shown_parts(read_template(cfg)),
    read_inputs,
)
ANSWER = PromptSpec(
    "answer",
    answer_template,
    lambda cfg: told_parts(answer_template(cfg)),
    lambda cfg: shown_parts(answer_template(cfg)),
    lambda cfg: ("question", "memory"),
)
