"""Settings of vLLM servers, with and without a vLLM."""

from __future__ import annotations

import pytest

from recollect.config import servers
from recollect.config.compose import compose
from recollect.config.servers import served
from recollect.config.startup_messages import startup_messages
from recollect.types import BadInput

ROLLOUT = "actor_rollout_ref.rollout"
VLLM = f"{ROLLOUT}.name=vllm"
ADDRESS = f"{ROLLOUT}.server_addresses=[http://127.0.0.1:8000]"


@pytest.fixture
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "has_vllm", lambda: False)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "has_vllm", lambda: True)


def test_without_vllm_the_engine_samples_and_says_so(no_vllm: None) -> None:
    cfg = compose(None, [VLLM])
    assert not served(cfg.actor_rollout_ref.rollout)
    assert any("there is no vLLM; the engine of this process samples" in line for line in startup_messages(cfg))
    for given in ([ADDRESS], [f"{ROLLOUT}.server_python=python3"]):
        assert served(compose(None, [VLLM, *given]).actor_rollout_ref.rollout)


def test_with_vllm_servers_sample(vllm: None) -> None:
    cfg = compose(None, [VLLM, f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.num_servers=3"])
    assert served(cfg.actor_rollout_ref.rollout)
    assert not any("samples" in line for line in startup_messages(cfg))
    assert not served(compose(None, []).actor_rollout_ref.rollout)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([f"{ROLLOUT}.num_servers=2"], r"num_servers=2 is about vLLM servers, and there is no vLLM: set .*name=vllm"),
        ([VLLM, f"{ROLLOUT}.num_servers=2"], r"there is no vLLM: install it \(pip install 'recollect-rl\[vllm\]'\)"),
        ([f"{ROLLOUT}.tensor_model_parallel_size=2"], r"tensor_model_parallel_size=2 needs several GPUs"),
        ([VLLM, ADDRESS, f"{ROLLOUT}.num_servers=2"], r"num_servers is about servers that the run starts"),
        ([VLLM, ADDRESS, f"{ROLLOUT}.server_python=x"], r"server_python is about servers that the run starts"),
        ([VLLM, ADDRESS, f"{ROLLOUT}.temperature=0.7", f"{ROLLOUT}.top_p=0.9"], r"no log-probabilities that fit both"),
        ([VLLM, ADDRESS, f"{ROLLOUT}.temperature=0.7", f"{ROLLOUT}.top_k=9"], r"no log-probabilities that fit both"),
        ([VLLM, f"{ROLLOUT}.server_addresses=[127.0.0.1:8000]"], r"127.0.0.1:8000 is no address; it starts with http"),
        ([VLLM, f"{ROLLOUT}.server_addresses=[http://a,http://a/]"], r"server_addresses names a server twice"),
    ],
)
def test_what_cannot_work_is_refused(settings: list[str], words: str, no_vllm: None) -> None:
    with pytest.raises(BadInput, match=words):
        compose(None, settings)


def test_one_of_temperature_and_truncation_is_described(vllm: None) -> None:
    compose(None, [VLLM, f"{ROLLOUT}.temperature=0.7"])
    compose(None, [VLLM, f"{ROLLOUT}.top_p=0.7", f"{ROLLOUT}.top_k=20"])
    val = [f"{ROLLOUT}.val_kwargs.{setting}" for setting in ("do_sample=True", "temperature=0.6", "top_p=0.95")]
    said = list(startup_messages(compose(None, [VLLM, *val])))
    assert any("log-probabilities of held-out attempts are not exact" in line for line in said)
