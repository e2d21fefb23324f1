"""The wording of the recurrent memory agent's prompts."""

from __future__ import annotations

from dataclasses import dataclass

EMPTY_MEMORY = "none"


@dataclass(frozen=True)
class Prompts:
    """Templates with {question}, {chunk} and {memory}."""

    update: str  # section before memory: all samples of a task share everything up to the memory
    update_memory_first: str  # MemAgent's order
    answer: str
    section: str  # a document, or what was found of it, and no memory


PROMPTS = {
    "plain": Prompts(
        update="Question: {question}\nSection: {chunk}\nMemory: {memory}",
        update_memory_first="Question: {question}\nMemory: {memory}\nSection: {chunk}",
        answer="Question: {question}\nMemory: {memory}\nAnswer:",
        section="Question: {question}\nSection: {chunk}\nAnswer:",
    ),
    "instruct": Prompts(
        update=(
            "You are reading a long document one section at a time to answer a question.\n\n"
            "<question>\n{question}\n</question>\n\n<section>\n{chunk}\n</section>\n\n<memory>\n{memory}\n</memory>\n\n"
            "Rewrite the memory so that it keeps every earlier detail that may help with the question and adds what "
            "this section contributes. Reply with the new memory and nothing else."
        ),
        update_memory_first=(
            "You are reading a long document one section at a time to answer a question.\n\n"
            "<question>\n{question}\n</question>\n\n<memory>\n{memory}\n</memory>\n\n<section>\n{chunk}\n</section>\n\n"
            "Rewrite the memory so that it keeps every earlier detail that may help with the question and adds what "
            "this section contributes. Reply with the new memory and nothing else."
        ),
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


def update_prompt(style: str, layout: str, question: str, chunk: str, memory: str) -> str:
    """The prompt of a turn that reads a section."""
    prompts = PROMPTS[style]
    template = prompts.update if layout == "chunk_first" else prompts.update_memory_first
    return template.format(question=question, chunk=chunk, memory=memory or EMPTY_MEMORY)


def answer_prompt(style: str, question: str, memory: str) -> str:
    """The prompt of the turn that answers from the memory alone."""
    return PROMPTS[style].answer.format(question=question, memory=memory or EMPTY_MEMORY)


def section_prompt(style: str, question: str, text: str) -> str:
    """The prompt of a baseline, which answers from text and has no memory."""
    return PROMPTS[style].section.format(question=question, chunk=text)
