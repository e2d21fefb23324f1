"""A client of Arbor's routes for tests, with the bodies that the clients of DSPy send."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx

from recollect.serve.arbor.job_shelf import JobShelf
from recollect.serve.arbor.trainable_server import TrainableServer
from recollect.serve.connections import Http
from recollect.serve.limits import ServeLimits
from recollect.serve.start import listening
from tests.waiting import LONG, until

SETTINGS = ("trainer.threads=1", "trainer.device=cpu")


def nested(model: str = "tiny", generations: int = 4, **trainer: Any) -> dict[str, Any]:
    """An initialize body of arbor-ai 0.2.17."""
    config = {
        "num_generations": generations,
        "temperature": 1.0,
        "beta": 0.0,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-4,
        "gradient_accumulation_steps": 1,
        "gradient_checkpointing": True,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 0,
        "max_prompt_length": None,
        "max_completion_length": None,
        "soft_completion_penalty_length": None,
        "mask_truncated_completions": False,
        "bf16": False,
        "scale_rewards": True,
        "gradient_checkpointing_kwargs": None,
        "max_grad_norm": 1.0,
        "report_to": "none",
        "log_completions": True,
        "logging_steps": 10,
        "max_seq_len": None,
        "max_steps": 500,
        "loss_type": "dapo",
        "num_training_gpus": 1,
        "lora_config": None,
        "weight_decay": 0.0,
    }
    return {
        "model": model,
        "trainer_config": config | trainer,
        "inference_config": {"model": model, "max_seq_len": None},
        "gpu_config": {"type": "multi", "multi": {"num_inference_gpus": 1, "num_training_gpus": 1}},
    }


def flat(model: str = "tiny", generations: int = 4, **more: Any) -> dict[str, Any]:
    """An initialize body of the clients inside DSPy 2.6 and 3.0.3."""
    config = {
        "model": model,
        "num_generations": generations,
        "temperature": 1.0,
        "beta": 0.02,
        "num_iterations": 1,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-4,
        "gradient_accumulation_steps": 1,
        "gradient_checkpointing": True,
        "lr_scheduler_type": "constant_with_warmup",
        "max_prompt_length": None,
        "max_completion_length": None,
        "bf16": False,
        "scale_rewards": True,
        "gradient_checkpointing_kwargs": None,
        "max_grad_norm": 1.0,
        "report_to": "none",
        "log_completions": True,
        "logging_steps": 10,
        "max_context_length": None,
        "update_interval": 25,
        "suffix": "mine",
        "lora": False,
    }
    return config | more


def asking(text: str) -> list[dict[str, str]]:
    """Messages as an adapter writes them."""
    return [{"role": "system", "content": "Answer."}, {"role": "user", "content": text}]


def rewarded(messages: list[dict[str, str]], text: str, reward: float) -> dict[str, Any]:
    """A completion of a step's body."""
    return {"messages": messages, "completion": {"role": "assistant", "content": text}, "reward": reward}


class Arbor:
    """A trainable server in a thread, and calls of its routes."""

    def __init__(self, folder: Path, only: str | None = "tiny", settings: tuple[str, ...] = SETTINGS) -> None:
        self.warned: list[str] = []
        self.server = TrainableServer(
            JobShelf(folder, settings, only, self.warned.append), ServeLimits(max_tokens=400, concurrency=64)
        )
        self.server.take_up()
        sock = listening("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        self.http = Http(self.server.app(), 64)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.http.serve(sock)), daemon=True)
        self.thread.start()
        assert until(lambda: self.http.started)

    def stop(self) -> None:
        self.http.stop()
        self.thread.join(20)
        if self.server.job is not None:
            self.server.job.run.release()  # as the end of a process does

    def post(self, route: str, body: Any, expect: int = 200) -> Any:
        answer = httpx.post(f"{self.url}/{route}", json=body, timeout=LONG)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def grpo(self, route: str, body: Any, expect: int = 200) -> Any:
        return self.post(f"fine_tuning/grpo/{route}", body, expect)

    def begin(self, body: Any = None) -> str:
        return str(self.grpo("initialize", nested() if body is None else body)["job_id"])

    def pending(self, job: str) -> list[int]:
        return list(self.grpo("status", {"job_id": job})["pending_batch_ids"])

    def chat(self, model: str, text: str, n: int = 1, **more: Any) -> list[str]:
        body = {"model": f"arbor:{model}", "messages": asking(text), "n": n, "max_tokens": 6, **more}
        return [c["message"]["content"] for c in self.post("chat/completions", body)["choices"]]

    def step(self, job: str, number: int | None, batch: list[Any], expect: int = 200, **more: Any) -> Any:
        body = {"job_id": job, "model": job, "batch": batch, **more}
        return self.grpo("step", body if number is None else body | {"batch_id": number}, expect)
