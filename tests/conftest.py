"""Shared fixtures: tiny models of several architectures, made here, so that nothing is downloaded."""

from __future__ import annotations

import gc
import os

os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

NO_CLOCK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
settings.register_profile("same", NO_CLOCK, derandomize=True)  # every run tries the same cases …
settings.register_profile("fuzz", NO_CLOCK, derandomize=False)  # … unless RECOLLECT_FUZZ asks for new ones
settings.load_profile("fuzz" if os.environ.get("RECOLLECT_FUZZ") else "same")


def pytest_collection_finish() -> None:
    """Modules and tests stay: collectors, which every run calls, need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False


SHAPE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def make_config(kind: str) -> Any:
    """A tiny configuration of an architecture."""
    import transformers

    extra: dict[str, dict[str, Any]] = {
        "Qwen2": {},
        "Qwen3": {"head_dim": 16},
        "Llama": {},
        "Mistral": {"sliding_window": 24},
        "Gemma": {"head_dim": 16},
        "Gemma2": {"head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16},
    }
    return getattr(transformers, f"{kind}Config")(**SHAPE, **extra[kind])


def make_pair(kind: str, seed: int = 0) -> tuple[Any, Any]:
    """(the library's own model with eager attention, the same weights with ours), both float32."""
    import torch
    from transformers import AutoModelForCausalLM

    from recollect.models.attention import register

    torch.manual_seed(seed)
    plain = AutoModelForCausalLM.from_config(make_config(kind), attn_implementation="eager").float().eval()
    with torch.no_grad():
        for p in plain.parameters():  # larger weights than at initialisation, so that attention matters
            p.mul_(1.0 if p.ndim == 1 else 6.0)
    ours = AutoModelForCausalLM.from_config(make_config(kind), attn_implementation=register()).float().eval()
    ours.load_state_dict(plain.state_dict())
    return plain, ours


ARCHITECTURES = ["Qwen2", "Qwen3", "Llama", "Mistral", "Gemma", "Gemma2"]


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from recollect.models.tiny import build_tokenizer

    return build_tokenizer()


@pytest.fixture(scope="session")
def renderer(tokenizer: Any) -> Any:
    from recollect.chat import Renderer

    return Renderer(tokenizer)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised embedded-shape model, small enough for quick runs."""
    from recollect.models.tiny import save_scratch

    out = tmp_path_factory.mktemp("model") / "small"
    save_scratch(out, 0, width=32, layers=2, heads=2)
    return out


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data for tests; skipped where it is absent."""
    folder = Path(os.environ.get("RECOLLECT_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no real data here; set RECOLLECT_TEST_DATA")
    return folder
