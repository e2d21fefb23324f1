"""A DSPy program that trains its model with arbor-ai's own client. It runs in an environment of its own.

    python dspy_program.py URL FOLDER_OF_ARBOR STEPS

Without a folder (an empty word) it takes the client that is a part of DSPy 3.0. The last line that it prints is JSON:
held-out scores before and after, and the model's name after training.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import sys
from pathlib import Path
from typing import Any

import dspy  # type: ignore[import-not-found,unused-ignore]

NAMES = ("mira", "dehi", "tola", "rani", "sumo", "kelo", "vani", "pora", "lume", "sita")
SAMPLING = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "repetition_penalty": 1.0}


def arbor_client(folder: Path) -> Any:
    """The files of arbor-ai that talk to a server, without the trainer that `import arbor` loads."""
    place = folder / "arbor" / "integrations" / "dspy"
    spec = importlib.util.spec_from_file_location(
        "arbor_dspy", place / "__init__.py", submodule_search_locations=[str(place)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["arbor_dspy"] = module
    spec.loader.exec_module(module)
    return module


def clients(folder: str) -> tuple[Any, Any, dict[str, Any]]:
    """The provider, the optimizer and what only it takes."""
    if folder:
        client = arbor_client(Path(folder))
        return client.ArborProvider, client.ArborGRPO, {"checkpoint": "single-best"}
    provider = importlib.import_module("dspy.clients.lm_local_arbor").ArborProvider
    return provider, importlib.import_module("dspy.teleprompt.grpo").GRPO, {}


class Plain(dspy.ChatAdapter):  # type: ignore[misc,unused-ignore]
    """Prompts in the words that the small model knows."""

    def format(self, signature: Any, demos: Any, inputs: Any) -> list[dict[str, str]]:
        text = f"Question: {inputs['question']}\nMemory: {inputs['memory']}\nAnswer:"
        return [{"role": "user", "content": text}]

    def parse(self, signature: Any, completion: str) -> dict[str, str]:
        return {"answer": completion.strip()}

    def format_assistant_message_content(self, signature: Any, outputs: Any, missing_field_message: Any = None) -> str:
        return str(outputs["answer"]).strip()


def example(rng: random.Random) -> Any:
    """A question about one of four facts."""
    names = rng.sample(NAMES, 4)
    values = [rng.randint(100, 999) for _ in names]
    memory = " ".join(f"{name} holds {value}" for name, value in zip(names, values, strict=True))
    item = dspy.Example(question=f"What does {names[0]} hold?", memory=memory, answer=str(values[0]))
    return item.with_inputs("question", "memory")


def exact(gold: Any, guess: Any, trace: Any = None) -> float:
    """The number in a box and nothing else."""
    return float(guess.answer == f"\\boxed{{ {gold.answer}}}")


def main(url: str, folder: str, steps: int) -> None:
    provider, optimizer, more = clients(folder)
    lm = dspy.LM(
        "openai/arbor:tiny",
        provider=provider(),
        api_base=f"{url}/",
        api_key="none",
        max_tokens=16,
        cache=False,
        num_retries=0,
        **SAMPLING,
    )
    dspy.configure(lm=lm, adapter=Plain())
    rng = random.Random(0)
    train, held_out = ([example(rng) for _ in range(count)] for count in (64, 60))
    program = dspy.Predict("question, memory -> answer")
    program.set_lm(lm)
    measure = dspy.Evaluate(devset=held_out, metric=exact, num_threads=6, display_progress=False)
    before = measure(program).score
    settings = {
        **SAMPLING,
        "learning_rate": 3e-4,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 32,
        "max_steps": steps,
    }
    teacher = optimizer(
        metric=exact,
        train_kwargs=settings,
        adapter=dspy.settings.adapter,
        exclude_demos=True,
        num_train_steps=steps,
        num_dspy_examples_per_grpo_step=4,
        num_rollouts_per_grpo_step=8,
        num_steps_for_val=5,
        **more,
    )
    trained = teacher.compile(program, trainset=train, valset=held_out[:12])
    after = measure(trained).score
    print(json.dumps({"before": before, "after": after, "model": lm.model}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
