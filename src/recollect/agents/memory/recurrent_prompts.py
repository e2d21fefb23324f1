"""The wording of the recurrent memory agent's prompts."""

from __future__ import annotations

from dataclasses import dataclass

EMPTY_MEMORY = "none"


@dataclass(frozen=True)
class Prompts:
    """Templates with {question}, {chunk} and {memory}. Where the section stands first, all samples share it."""

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
        chunk="Section: {chunk}\n",
        memory="Memory: {memory}\n",
        end="",
        end_blind="",
        answer="Question: {question}\nMemory: {memory}\nAnswer:",
        section="Question: {question}\nSection: {chunk}\nAnswer:",
    ),
    "instruct": Prompts(
        asked="<question>\n{question}\n</question>\n\n",
        begin=_READING + " to answer a question.\n\n",
        begin_blind=_READING + ". Questions about it come when you have read it all.\n\n",
        chunk="<section>\n{chunk}\n</section>\n\n",
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
            "<document>\n{chunk}\n</document>\n\n<question>\n{question}\n</question>\n\n"
            "Think if you need to, then put the final answer in \\boxed{{}}."
        ),
    ),
}


def update_prompt(style: str, layout: str, question: str | None, chunk: str, memory: str) -> str:
    """The prompt of a turn that reads a section; a question of None is not shown."""
    template = PROMPTS[style].update(layout, question is not None)
    return template.format(question=question, chunk=chunk, memory=memory or EMPTY_MEMORY)


def answer_prompt(style: str, question: str, memory: str) -> str:
    """The prompt of the turn that answers from the memory alone."""
    return PROMPTS[style].answer.format(question=question, memory=memory or EMPTY_MEMORY)


def section_prompt(style: str, question: str, text: str) -> str:
    """The prompt of a baseline, which answers from text and has no memory."""
    return PROMPTS[style].section.format(question=question, chunk=text)
