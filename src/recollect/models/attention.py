"""How our attention is plugged into any decoder-only transformers model.

The library asks an attention function, registered by name, for the output of every layer. Ours hands the call to the
*plan* that is active at that moment: the engine's plan reads and writes its KV cache, the learner's plan
attends within prefix trees. No model code is copied, so an architecture works if the library's own interface
reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.models.kind_check import sees, text_attention
from recollect.models.text_config import text_config
from recollect.runtime.error_text import listed
from recollect.types import BadInput

NAME = "recollect"
# what the library hands to every attention and what does not change it, or is what ours does anyway
HARMLESS = {"position_ids", "cache_position", "use_cache", "past_key_values", "logits_to_keep", "output_attentions"}
HARMLESS |= {"output_hidden_states", "output_router_logits", "return_dict", "num_items_in_batch"}


def window_of(attention: Any) -> int | None:
    """How far back an attention module of the library looks; None: to the beginning."""
    return getattr(attention, "sliding_window", getattr(attention.config, "sliding_window", None))


class Scoring(NamedTuple):
    """What scores are multiplied by, how far back queries look, and what scores are capped at (None: no limit)."""

    scale: float
    window: int | None = None
    softcap: float | None = None


class AttentionPlan(Protocol):
    """Computes one layer's attention. Queries are [heads, tokens, dim]; the result is [tokens, heads, dim]."""

    @property
    def keep(self) -> Tensor | None:
        """Flat places whose output is read after the last layer; None: all of them."""
        ...

    @property
    def total(self) -> int:
        """How many flat tokens there are."""
        ...

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor: ...


class RecordingPlan:
    """A plan that notes what it is asked for and answers with the queries: to try one computation against another."""

    keep = None

    def __init__(self, total: int) -> None:
        self.total = total
        self.inputs: list[Tensor] = []  # queries, keys and values of each layer
        self.calls: list[tuple[int, Scoring]] = []

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        self.inputs += [x.clone() for x in (q, k, v)]  # compiled layers use memory again
        self.calls.append((layer, scoring))
        return q.transpose(0, 1).clone(memory_format=torch.contiguous_format)


_active: AttentionPlan | None = None  # a plain global: backward passes on other threads must see it too


@contextmanager
def using(plan: AttentionPlan) -> Iterator[None]:
    """Make a plan the one that every model of this process attends with."""
    global _active, _next_layer
    before, _active, _next_layer = _active, plan, 0
    try:
        yield
    finally:
        _active = before


def active() -> AttentionPlan | None:
    """The plan that is used at the moment."""
    return _active


_next_layer = 0  # which of the compiled layers attends next


@torch.library.custom_op("recollect::attend_next", mutates_args=())
def _attend_next(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int, softcap: float) -> Tensor:
    """Attention inside a compiled layer. All layers are one compiled function, told apart by their order."""
    global _next_layer
    assert _active is not None, "a model with recollect attention ran outside `using(plan)`"
    layer, _next_layer = _next_layer, _next_layer + 1
    scoring = Scoring(scale, window or None, softcap or None)
    return _active.attend(layer, q, k, v, scoring).contiguous()  # as promised below


@_attend_next.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int, softcap: float) -> Tensor:
    return q.new_empty(q.shape[1], q.shape[0], q.shape[2])


@torch.library.custom_op("recollect::attend_tree", mutates_args=())
def _attend_tree(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int, softcap: float) -> tuple[Tensor, Tensor]:
    """Attention inside a compiled layer that is trained: [tokens, heads, dim], and what its gradient needs."""
    plan: Any = _active
    return plan.attend_kept(q, k, v, Scoring(scale, window or None, softcap or None))


@_attend_tree.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int, softcap: float) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)


@torch.library.custom_op("recollect::attend_tree_back", mutates_args=())
def _attend_tree_back(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, total: Tensor, scale: float, window: int, softcap: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradient; the plan of the forward pass is active again."""
    plan: Any = _active
    return plan.attend_back(grad, (q, k, v, out, total), Scoring(scale, window or None, softcap or None))


@_attend_tree_back.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, total: Tensor, scale: float, window: int, softcap: float
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep_for_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *ctx.limits = inputs
    ctx.save_for_backward(q, k, v, *output)


def _gradient(ctx: Any, grad: Tensor, _: Any) -> Any:
    return *_attend_tree_back(grad.contiguous(), *ctx.saved_tensors, *ctx.limits), None, None, None


_attend_tree.register_autograd(_gradient, setup_context=_keep_for_gradient)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    assert query.shape[0] == 1, "recollect attention takes one flat batch"
    _check_arguments(module, attention_mask, is_causal, more)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    width = value.shape[-1]
    query, key, value = _same_width(query, key, value)
    if torch.is_autocast_enabled(query.device.type):  # rope was computed in float32: queries and keys, but not values
        query, key, value = (x.to(torch.get_autocast_dtype(x.device.type)) for x in (query, key, value))
    if torch.compiler.is_compiling():
        limits = float(scale), sliding_window or 0, softcap or 0.0
        if torch.is_grad_enabled():
            found, _ = _attend_tree(*(x[0].transpose(0, 1).contiguous() for x in (query, key, value)), *limits)
        else:
            found = _attend_next(query[0], key[0], value[0], *limits)
        return found.unsqueeze(0)[..., :width], None
    assert _active is not None, "a model with recollect attention ran outside `using(plan)`"
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    out = _active.attend(layer, query[0], key[0], value[0], Scoring(scale, sliding_window, softcap))
    return out.unsqueeze(0)[..., :width], None


def _check_arguments(module: torch.nn.Module, mask: Any, is_causal: bool | None, more: dict[str, Any]) -> None:
    """Refuse what would change the attention and is unknown here: it must not vanish."""
    unknown = [name for name, value in more.items() if value is not None and name not in HARMLESS]
    if mask is not None:
        unknown.append("attention_mask")
    if is_causal is False or (is_causal is None and getattr(module, "is_causal", True) is False):
        unknown.append("is_causal=False")
    if unknown:
        where = f"{type(module).__name__} of layer {getattr(module, 'layer_idx', '?')}"
        raise BadInput(f"{where} attends with {listed(unknown)}, which recollect's attention does not know")


def _same_width(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads of one width: zeros at the end change no score, and what they add to the output is cut off."""
    more = value.shape[-1] - key.shape[-1]
    if more > 0:
        return F.pad(query, (0, more)), F.pad(key, (0, more)), value
    return query, key, F.pad(value, (0, -more)) if more else value


@contextmanager
def recording() -> Iterator[None]:
    """Autograd records what is computed, inside an operator of ours too, where torch has turned it off."""
    with torch.enable_grad(), torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False):
        yield


def register() -> str:
    """Register our attention with the library, and return its name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)
    return NAME


def is_ours(model: Any) -> bool:
    """True when a model attends by way of the active plan."""
    return getattr(text_config(model), "_attn_implementation", None) == NAME


def attend_with(model: Any, name: str) -> None:
    """Have a model's layers attend by a function of this name; a vision tower keeps its own."""
    model.set_attn_implementation(text_attention(name) if sees(model.config) else name)


def focus(model: torch.nn.Module) -> None:
    """Have the last layer compute only the tokens whose output is read (the plan's ``keep``), where that is possible.

    Nothing reads the other tokens after the last attention has seen their keys and values.
    """
    attention = {
        int(m.layer_idx): (n, m) for n, m in model.named_modules() if getattr(m, "layer_idx", None) is not None
    }
    if not attention or not is_ours(model):
        return
    name, last = attention[max(attention)]
    layer = model.get_submodule(name.rpartition(".")[0])
    for module in (getattr(last, "o_proj", None), getattr(layer, "mlp", None)):
        if isinstance(module, torch.nn.Module) and not hasattr(module, "recollect_focus"):
            module.register_forward_pre_hook(_select)
            module.register_forward_hook(_scatter)
            module.recollect_focus = True  # type: ignore[assignment]


def unfocus(model: torch.nn.Module) -> None:
    """Have every layer compute all of its tokens again."""
    for module in model.modules():
        if hasattr(module, "recollect_focus"):
            module._forward_pre_hooks.clear()
            module._forward_hooks.clear()
            del module.recollect_focus


def _select(module: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    if _active is None or _active.keep is None:
        return None
    return args[0].index_select(1, _active.keep), *args[1:]


def _scatter(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    if _active is None or _active.keep is None:
        return None
    if isinstance(output, tuple):  # with what a router decided
        return _scatter(module, args, output[0]), *output[1:]
    return output.new_zeros(output.shape[0], _active.total, output.shape[2]).index_copy(1, _active.keep, output)


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, softcap: float | None = None) -> Tensor:
    """Attention over [batch, heads, length, dim] with grouped key heads; ``mask`` None means causal."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    if softcap is None:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, scale=scale)
    scores = softcap * torch.tanh((q @ k.transpose(-1, -2)).float() * scale / softcap)
    if mask is None:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, -1).to(v.dtype) @ v


def small_sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """The same by plain products, which on CPUs is several times faster with gradients while the scores are few."""
    batch, heads, n, dim = q.shape
    if mask is None:
        mask = torch.ones(n, k.shape[-2], dtype=torch.bool, device=q.device).tril()
    blocked = torch.zeros(mask.shape, device=q.device).masked_fill_(~mask, -1e30)
    query = (q * scale).reshape(batch, k.shape[1], -1, dim)  # heads that read one key head side by side
    scores = (query @ k.transpose(-1, -2)).view(batch, heads, n, -1)
    weights = torch.softmax(scores + blocked, -1).to(v.dtype)
    return (weights.view(batch, k.shape[1], query.shape[2], -1) @ v).view(batch, heads, n, v.shape[-1])
