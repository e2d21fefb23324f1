"""An agent of your own: it reads the document twice.

python examples/own_agent.py            # some minutes on a CPU
python examples/own_agent.py --small    # two steps, to see that it works
"""

import sys

import recollect
from recollect.agents.memory.recurrent_prompts import answer_prompt, update_prompt
from recollect.config import Config

SMALL = {"data.train_batch_size": 2, "actor_rollout_ref.rollout.n": 2, "trainer.total_training_steps": 2}


@recollect.agent(roles=("memory", "qa"), reads_document=True)
async def read_twice(task: recollect.Task, session: recollect.Session, cfg: Config) -> str:
    """One turn for each section, twice, then one that answers from the memory alone."""
    memory = ""
    for section in [*session.sections(task.context or "", 48, "sentence", 0)] * 2:
        prompt = update_prompt("plain", "chunk_first", task.question, section.strip(), memory)
        memory = (await session.generate(prompt, role="memory", max_tokens=12)).text.strip()
        session.note(memory)  # shown in the report
    return (await session.generate(answer_prompt("plain", task.question, memory), role="qa", max_tokens=12)).text


def main(small: bool) -> recollect.Result:
    """Train the embedded model with it."""
    settings = {"trainer.total_training_steps": 20, "evaluation.lengths": [1], "evaluation.tasks": [64]}
    more = SMALL | {"evaluation.tasks": [4]} if small else {}
    return recollect.train("needle", agent=read_twice, settings=settings | more, out="runs/examples/own_agent")


if __name__ == "__main__":
    result = main("--small" in sys.argv)
    print("held-out success:", result.report.held_out)
    for note in result.run.trajectories(step=1)[0]["notes"]:
        print("memory:", note)
