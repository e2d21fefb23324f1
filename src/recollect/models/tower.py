"""A vision tower over many pictures at once: its attention, and the product that reads patches.

The library attends picture by picture, or window by window, which takes longer than the attention itself where pictures
are small or many. Here those of equal size are one batch. What the tower computes stays the same.
"""

from __future__ import annotations

from copy import copy
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NAME = "recollect_flash_tower"  # to an attention with "flash" in its name the library hands all pictures in one call
SMALL = 256  # tokens of a picture up to which plain products are faster on a CPU


def attend(
    module: Any, q: Tensor, k: Tensor, v: Tensor, attention_mask: None, scaling: float, cu_seq_lens_q: Tensor, **_: Any
) -> tuple[Tensor, None]:
    """[1, tokens, heads, dim] from queries, keys and values [1, heads, tokens, dim]; each picture sees itself alone."""
    starts, lengths = cu_seq_lens_q[:-1], cu_seq_lens_q.diff()
    sizes = sorted(set(lengths.tolist()))
    if len(sizes) == 1:
        return _side_by_side(q[0], k[0], v[0], len(lengths), scaling)[None], None
    out = q.new_empty(q.shape[2], q.shape[1], q.shape[3])
    for size in sizes:
        these = starts[lengths == size]
        where = (these[:, None] + torch.arange(size, device=q.device)).flatten()
        of_these = [x[0].index_select(1, where) for x in (q, k, v)]
        made = _side_by_side(of_these[0], of_these[1], of_these[2], len(these), scaling)
        out = out.index_copy(0, where, made)
    return out[None], None


def _side_by_side(q: Tensor, k: Tensor, v: Tensor, count: int, scaling: float) -> Tensor:
    """[tokens, heads, dim] from [heads, tokens, dim] of so many pictures of one size."""
    heads, tokens, dim = q.shape
    size = tokens // count
    q, k, v = (x.reshape(heads, count, size, dim).transpose(0, 1) for x in (q, k, v))
    if q.device.type == "cpu" and size <= SMALL:
        out = torch.softmax((q * scaling) @ k.transpose(-1, -2), -1) @ v
    else:
        out = F.scaled_dot_product_attention(q, k, v, scale=scaling)
    return out.transpose(1, 2).reshape(tokens, heads, dim)


def speed_up(tower: Any) -> None:
    """Let a tower of the library attend so, and read its patches, which do not overlap, by one product."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    for module in tower.modules():
        if hasattr(module, "qkv") and hasattr(module, "config"):
            module.config = copy(module.config)  # which no setting of the whole model reaches
            module.config._attn_implementation = NAME
    if isinstance(getattr(tower.patch_embed, "proj", None), nn.Conv3d):
        tower.patch_embed.forward = MethodType(_read_patches, tower.patch_embed)


def _read_patches(embed: Any, patches: Tensor) -> Tensor:
    """[patches, width] from [patches, values]."""
    proj = embed.proj
    if not isinstance(proj, nn.Conv3d):  # an adapter is around it
        return type(embed).forward(embed, patches)
    return F.linear(patches.to(proj.weight.dtype), proj.weight.flatten(1), proj.bias)
