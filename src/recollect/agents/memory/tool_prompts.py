"""The wording of the tool-memory agent's prompts."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.memory.recurrent_prompts import EMPTY_MEMORY


@dataclass(frozen=True)
class MemoryPrompts:
    """Templates: {chunk} or {question}, and of the memory {core}, {titles}, {count} notes, {used} of {budget}."""

    system: str  # before both kinds of conversation; {tools} lists the tools where a template cannot
    read: str
    answer: str


_STATE = (
    "<core_memory>\n{core}\n</core_memory>\n\n"
    "There are {count} notes; {used} of {budget} tokens are used. Titles of the newest:\n{titles}\n\n"
)

MEMORY_PROMPTS = {
    "plain": MemoryPrompts(
        system="",
        read="Section: {chunk}\nNotes: {titles}\nMemory: {core}",
        answer="Question: {question}\nNotes: {titles}\nMemory: {core}",
    ),
    "instruct": MemoryPrompts(
        system=(
            "You keep a memory of a long document: a core text, which you always see, and titled notes, which you look "
            "up. Together they hold at most {budget} tokens; what is over is cut off."
        ),
        read=(
            "<section>\n{chunk}\n</section>\n\n" + _STATE + "This is the next section of the document. Questions about "
            "it come later, when you no longer see it. Write down what may be asked about, correct notes that have "
            "changed, and remove what is of no use. Reply without a tool call when you are done."
        ),
        answer=(
            _STATE + "<question>\n{question}\n</question>\n\n"
            "Answer the question from your memory; look up what you need. Then put the final answer in \\boxed{{}}."
        ),
    ),
}


def read_prompt(style: str, chunk: str, state: dict[str, str]) -> str:
    """The prompt of a conversation that reads a chunk."""
    return MEMORY_PROMPTS[style].read.format(chunk=chunk, **state)


def question_prompt(style: str, question: str, state: dict[str, str]) -> str:
    """The prompt of a conversation that answers a question."""
    return MEMORY_PROMPTS[style].answer.format(question=question, **state)


def shown_state(core: str, titles: str, count: int, used: int, budget: int) -> dict[str, str]:
    """What a prompt says about the memory."""
    return {
        "core": core or EMPTY_MEMORY,
        "titles": titles or EMPTY_MEMORY,
        "count": str(count),
        "used": str(used),
        "budget": str(budget),
    }
