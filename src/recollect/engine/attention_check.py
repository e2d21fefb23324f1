"""Whether our attention computes what a model's own would: tried on a small random model of the same kind.

Log-probabilities of packed trees and of the engine are compared with the library's own model, row by row. Where they
differ, rows are computed in the library's own way, which is tried too; where that is not right either, the model is
refused. A verdict is made once for a configuration in a process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recollect.engine.batching import Engine
from recollect.engine.library import LibraryEngine
from recollect.engine.loop import EngineLoop
from recollect.engine.plain import PlainBackend
from recollect.engine.shape import layer_name, layers_of
from recollect.models.attention import attend_with, focus, register, using
from recollect.models.kind_check import sees
from recollect.models.load import load_config, load_model
from recollect.models.plain_rows import be_plain, body_of, row_states
from recollect.models.small_copy import small_configs, small_model
from recollect.models.text_config import text_config
from recollect.packing.micro_batch import Packed, pack
from recollect.packing.tree import build_tree
from recollect.types import BadInput, Completion, Sampling

SAYING = ("_name_or_path", "dtype", "torch_dtype", "transformers_version", "architectures", "use_cache")  # of no effect
NEAR = 2e-3  # by which numbers may differ in float32
NEAR_WEIGHTS, NEAR_HALF = 1e-2, 0.3  # by which log-probabilities of loaded weights may, in most tokens
NEW = 4  # tokens that the engine samples for each prompt


@dataclass(frozen=True)
class AttentionFit:
    """How a kind of model is computed: fast, or plain for a reason.

    ``cached`` says that the library's cache serves plain rows; else each token is computed from the whole row.
    """

    fast: bool
    why: str = ""
    cached: bool = True

    @property
    def note(self) -> str:
        """What a run says at its start; empty for the fast way."""
        return "" if self.fast else f"plain rows with the library's attention, slower than usual: {self.why}"


_known: dict[str, AttentionFit | BadInput] = {}


def fit_of(config: Any) -> AttentionFit:
    """How models of this configuration are computed; those that nothing computes rightly are refused."""
    if sees(config):
        return AttentionFit(True)  # the types of such models are few, and tests compare each with the library's own
    text = config.get_text_config(decoder=True)
    values = {k: v for k, v in text.to_dict().items() if k not in SAYING}
    key = f"{type(text).__name__} {json.dumps(values, sort_keys=True, default=str)}"
    if key not in _known:
        try:
            _known[key] = _tried(text)
        except BadInput as error:
            _known[key] = error
    found = _known[key]
    if isinstance(found, BadInput):
        raise found
    return found


def load_fitted(path: str, dtype: Any, device: str = "cpu") -> Any:
    """A causal language model as it can be computed: with our attention, or marked as a plain one."""
    fast = fit_of(load_config(path)).fast
    model = load_model(path, dtype, device, register() if fast else None)
    if fast:
        check_weights(model)
    else:
        be_plain(model)
    return model


@torch.no_grad()
def check_weights(model: Any) -> None:
    """Refuse a model whose own weights, packed, predict otherwise than row by row with the library's attention."""
    device, rows = next(model.parameters()).device, _rows(text_config(model).vocab_size)
    packed, tree = packed_rows(rows).to(device), build_tree(range(len(rows)), rows)
    model.eval()
    with using(packed.plan):
        found = model(input_ids=packed.tokens[None], position_ids=packed.positions[None], use_cache=False).logits[0]
    attend_with(model, "eager")
    try:
        expected = {row: _logits(model, rows[row]) for row in tree.rows}
    finally:
        attend_with(model, register())
    differences = []
    for row, path in zip(tree.rows, tree.paths, strict=True):
        mine = _predicted(found[torch.from_numpy(path).to(device)], rows[row])
        differences.append((mine - _predicted(expected[row], rows[row])).abs())
    difference = torch.cat(differences)
    limit = NEAR_HALF if next(model.parameters()).element_size() == 2 else NEAR_WEIGHTS
    if not float(difference.nan_to_num(1e9).quantile(0.9)) <= limit:  # single tokens may change their experts
        raise BadInput(
            f"{model.config.model_type} models cannot be used: recollect's attention gives other log-probabilities "
            f"than the library's (by {float(difference.max()):.2g}), from {layer_name(model, 0)} on"
        )


def _predicted(logits: Tensor, row: np.ndarray) -> Tensor:
    """Log-probabilities of a row's tokens but the first."""
    targets = torch.from_numpy(row[1:, None]).to(logits.device)
    return logits[:-1].float().log_softmax(-1).gather(-1, targets)[:, 0]


def _tried(config: Any) -> AttentionFit:
    """The verdict on the smallest model of this kind that can be made."""
    for small in small_configs(config):
        try:
            model = small_model(small, "eager")
            rows = _rows(text_config(model).vocab_size)
            expected = [_logits(model, row) for row in rows]
        except Exception:  # whatever the library objects to in a configuration that was made smaller
            continue
        why = _why_not_fast(small, model, rows, expected)
        return _plain(small, rows, expected, why) if why else AttentionFit(True)
    return AttentionFit(False, f"no small {config.model_type} model could be made to try it", cached=False)


def _rows(vocabulary: int) -> list[np.ndarray]:
    """Rows of which two begin alike, longer than the windows of small models."""
    source = np.random.default_rng(0)
    ids = lambda count: np.asarray(source.integers(3, vocabulary, count))
    common = ids(20)
    return [np.concatenate([common, ids(9)]), np.concatenate([common, ids(6)]), ids(17)]


def packed_rows(rows: Sequence[np.ndarray]) -> Packed:
    """Rows as one tree (of any number of roots), all their tokens trained on."""
    offsets = np.cumsum([0, *(len(row) for row in rows)]).tolist()
    return pack([build_tree(range(len(rows)), rows)], [np.arange(len(r)) > 0 for r in rows], offsets)


@torch.no_grad()
def _logits(model: Any, row: np.ndarray) -> Tensor:
    """[tokens, vocabulary] what the library's own model computes for a row by itself."""
    ids = torch.from_numpy(row).to(next(model.parameters()).device)
    return model(input_ids=ids[None], use_cache=False).logits[0]


def _why_not_fast(config: Any, model: Any, rows: list[np.ndarray], expected: list[Tensor]) -> str:
    """Why our attention does not compute what the library's does, in a few words; empty where it does."""
    try:
        ours = small_model(config, register())
        backend = PlainBackend(ours) if torch.cuda.is_available() else None  # on a CPU, the one that runs will use
        engine = Engine(ours, str, backend=backend)
        ours.eval().load_state_dict(model.state_dict())
        engine.new_weights(0)
        worst = _packed_difference(ours, model, rows, expected)
        if worst:
            return worst
        return _engine_difference(engine, model, rows)
    except BadInput as error:
        return str(error)
    except Exception as error:
        return f"{config.model_type} models do not take recollect's attention ({type(error).__name__})"


@torch.no_grad()
def _packed_difference(ours: Any, model: Any, rows: list[np.ndarray], expected: list[Tensor]) -> str:
    """The first layer that mixes what lies side by side."""
    packed, tree = packed_rows(rows), build_tree(range(len(rows)), rows)
    focus(ours)
    seen = _Outputs(ours)
    with using(packed.plan), seen:
        found = ours(input_ids=packed.tokens[None], position_ids=packed.positions[None], use_cache=False).logits[0]
    for row, path in zip(tree.rows, tree.paths, strict=True):
        if near(found[path][:-1], expected[row][:-1]):
            continue
        alone = _Outputs(model)
        with alone:
            _logits(model, rows[row])
        pairs = zip(seen.made, alone.made, strict=False)
        differ = (i for i, (a, b) in enumerate(pairs) if a.shape[1] < len(path) or not near(a[0, path], b[0]))
        return f"{layer_name(model, next(differ, len(seen.made) - 1))} mixes rows that are packed side by side"
    return ""


class _Outputs:
    """What a model's layers put out while it is entered, in order."""

    def __init__(self, model: Any) -> None:
        self.model, self.made = model, list[Tensor]()

    def __enter__(self) -> None:
        self._hooks = [layer.register_forward_hook(self._note) for layer in layers_of(self.model)]

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _note(self, layer: nn.Module, args: Any, output: Any) -> None:
        self.made.append(output[0] if isinstance(output, tuple) else output)


def near(found: Tensor, expected: Tensor, limit: float = NEAR) -> bool:
    """Whether numbers differ by no more than a little; what is not a number is not near."""
    return found.shape == expected.shape and torch.allclose(found.float(), expected.float(), atol=limit, rtol=limit)


def _engine_difference(engine: EngineLoop, model: Any, rows: list[np.ndarray]) -> str:
    """What is wrong with an engine's completions, compared with whole rows; empty: nothing."""
    prompts = [*rows, rows[0], rows[1][: len(rows[2])]]  # equal ones, and some of one length
    for prompt, done in zip(prompts, complete(engine, prompts), strict=True):
        logits = _logits(model, np.concatenate([prompt, done.ids]))[len(prompt) - 1 : -1]
        expected = logits.float().log_softmax(-1).gather(-1, torch.tensor(done.ids)[:, None])[:, 0]
        if not near(torch.tensor(done.logprobs), expected):
            return f"{model.config.model_type} models continue rows otherwise than they read them"
    return ""


def complete(engine: EngineLoop, prompts: Sequence[np.ndarray], new: int = NEW) -> list[Completion]:
    """Completions of prompts, a token more for each."""

    async def ask() -> list[Completion]:
        asked = (Sampling(max_tokens=new + i, key=f"fit/{i}") for i in range(len(prompts)))
        return await asyncio.gather(*(engine.generate(p.tolist(), s) for p, s in zip(prompts, asked, strict=True)))

    with ThreadPoolExecutor(1) as alone:  # whoever asks may have an event loop of its own
        return alone.submit(asyncio.run, ask()).result()


def _plain(config: Any, rows: list[np.ndarray], expected: list[Tensor], why: str) -> AttentionFit:
    """The verdict on a model that our attention does not fit."""
    model = small_model(config, None)
    with torch.no_grad():
        tree, packed = build_tree(range(len(rows)), rows), packed_rows(rows)
        states = row_states(model, packed.tokens, packed.positions)
        for row, path in zip(tree.rows, tree.paths, strict=True):
            alone = body_of(model)(input_ids=torch.from_numpy(rows[row])[None], use_cache=False)[0][0]
            if not near(states[path], alone) or not near(_logits(model, rows[row]), expected[row]):
                raise BadInput(f"{config.model_type} models cannot be used: {why}, and a token sees what follows it")
    for cached in (True, False):
        try:
            if not _engine_difference(LibraryEngine(model, str, cached=cached), model, rows):
                return AttentionFit(False, why, cached)
        except Exception as error:
            if not cached:
                why += f" ({type(error).__name__})"
    raise BadInput(f"{config.model_type} models cannot be used: {why}, and the library continues rows wrongly")
