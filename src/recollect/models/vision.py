"""Models that see: the ids of images become what the model's own vision tower makes of them.

The library's body expects pixels beside its ids, and computes positions from whole rows. Ours is asked with flat ids,
those of images among them (`images/image_ids.py`), and their rotary positions. It looks the images up, runs each
through the library's processor and tower once, and puts the results in the places of their ids. Layers, tower and
rotary embedding are the library's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.images.image_files import MOST_PIXELS, pixels
from recollect.images.image_ids import COLUMN, FIRST, ROW, Span, grid_of, image_of, spans
from recollect.images.patches import Patches, read_patches
from recollect.models.states import States
from recollect.models.tower import speed_up
from recollect.types import BadInput

KEPT = 1 << 16  # tokens of images that are remembered while a tower does not change
TOGETHER = 1 << 14  # tokens of images that go through a tower at a time, where one alone has no more
ROWS = (1 << (COLUMN - ROW)) - 1
START = (1 << ROW) - 1


class TowerOutput(NamedTuple):
    """What a tower makes of an image: [tokens, width], and what some layers add to it, as Qwen3-VL's do."""

    embeds: Tensor
    deeper: tuple[Tensor, ...] = ()


class Sight:
    """A model's processor, and what its tower made of the images that were seen last, while that cannot change."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.frozen = False  # the tower's weights never change: what it made may be kept
        self.computed = 0  # images that went through the tower
        self._kept: OrderedDict[int, TowerOutput] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, Any]) -> Sight:
        made = Sight(self.processor)
        made.frozen = self.frozen
        return made

    def forget(self) -> None:
        """Forget what the tower made: its weights have changed."""
        self._kept.clear()

    def look(self, body: Any, bases: list[int]) -> list[TowerOutput]:
        """What the tower makes of some images, each of them once."""
        known = {base: self._kept[base] for base in bases if base in self._kept}
        fresh = [base for base in dict.fromkeys(bases) if base not in known]
        for some in _in_groups(fresh):
            if self.frozen:
                with torch.inference_mode(False), torch.no_grad():
                    made = self._through(body, some)
            else:
                made = self._through(body, some)
            known |= dict(zip(some, made, strict=True))
        if self.frozen:
            self._keep({base: known[base] for base in dict.fromkeys(bases)})
        return [known[base] for base in bases]

    def _through(self, body: Any, bases: list[int]) -> list[TowerOutput]:
        given = self.processor([pixels(image_of(base)) for base in bases], return_tensors="pt")
        device = body.language_model.embed_tokens.weight.device
        found = body.get_image_features(given["pixel_values"].to(device), given["image_grid_thw"].to(device))
        self.computed += len(bases)
        deeper = [*zip(*(getattr(found, "deepstack_features", None) or ()), strict=True)] or [()] * len(bases)
        return [TowerOutput(embeds, tuple(more)) for embeds, more in zip(found.pooler_output, deeper, strict=True)]

    def _keep(self, used: dict[int, TowerOutput]) -> None:
        for base, seen in used.items():
            self._kept[base] = seen
            self._kept.move_to_end(base)
        total = sum(len(seen.embeds) for seen in self._kept.values())
        while total > KEPT and len(self._kept) > len(used):
            total -= len(self._kept.popitem(last=False)[1].embeds)


def _in_groups(bases: list[int]) -> Iterator[list[int]]:
    """Images that go through a tower together: so few that their pixels and tokens fit the memory."""
    group: list[int] = []
    tokens = area = 0
    for base in bases:
        image, size = image_of(base), grid_of(base).size
        tokens, area = tokens + size, area + image.width * image.height
        if group and (tokens > TOGETHER or area > MOST_PIXELS):
            yield group
            group, tokens, area = [], size, image.width * image.height
        group.append(base)
    if group:
        yield group


def give_sight(model: Any, processor: Any) -> Any:
    """Let a model of the library take ids of images."""
    body = model.base_model
    body.recollect_sight = Sight(processor)
    speed_up(body.visual)
    body.forward = MethodType(_forward, body)
    return model


def sight_of(model: Any) -> Sight | None:
    """What a model sees with; None for one that reads text alone."""
    return vars(getattr(model, "base_model", model)).get("recollect_sight")


def freeze_tower(model: Any) -> None:
    """Leave the vision tower as it is: what it makes of an image is computed once and kept."""
    sight = sight_of(model)
    if sight is not None:
        model.base_model.visual.requires_grad_(False)
        sight.frozen = True


def text_body(model: Any) -> Any:
    """The part of a model that holds the layers which read text: of one that sees, its language model."""
    body = model.base_model
    return body if sight_of(model) is None else body.language_model


def three_positions(rotary: Tensor) -> Tensor:
    """[3, 1, tokens] time, row and column of packed rotary positions [1, tokens]."""
    start = rotary & START
    return torch.stack([start, start + ((rotary >> ROW) & ROWS), start + (rotary >> COLUMN)])


def _forward(
    body: Any, input_ids: Tensor | None = None, position_ids: Tensor | None = None, use_cache: Any = None, **more: Any
) -> Any:
    """Flat ids with their rotary positions in our way, anything else in the library's."""
    if input_ids is None or position_ids is None or position_ids.ndim != 2 or input_ids.shape[0] != 1:
        return type(body).forward(body, input_ids=input_ids, position_ids=position_ids, use_cache=use_cache, **more)
    more = {name: value for name, value in more.items() if value is not None and name != "return_dict"}
    places = input_ids[0] >= FIRST
    embeds = body.language_model.embed_tokens(input_ids.masked_fill(places, 0))
    if bool(places.any()):
        where, seen = _seen(body, input_ids[0])
        embeds = embeds.index_copy(1, where, seen.embeds.to(embeds.dtype)[None])
        if seen.deeper:
            layers = [x.to(embeds.dtype) for x in seen.deeper]
            more |= {"visual_pos_masks": places[None], "deepstack_visual_embeds": layers}
    out = body.language_model(inputs_embeds=embeds, position_ids=three_positions(position_ids), use_cache=False, **more)
    return States(last_hidden_state=out.last_hidden_state)


def _seen(body: Any, ids: Tensor) -> tuple[Tensor, TowerOutput]:
    """Where image tokens are among flat ids, and what is there."""
    found: list[Span] = list(spans(ids.cpu().numpy()))
    looked = body.recollect_sight.look(body, [span.base for span in found])
    cut = [slice(span.skipped, span.skipped + span.stop - span.start) for span in found]
    where = np.concatenate([np.arange(span.start, span.stop) for span in found])
    layers = range(len(looked[0].deeper))
    deeper = tuple(torch.cat([s.deeper[i][c] for s, c in zip(looked, cut, strict=True)]) for i in layers)
    embeds = torch.cat([s.embeds[c] for s, c in zip(looked, cut, strict=True)])
    return torch.from_numpy(where).to(ids.device), TowerOutput(embeds, deeper)


def load_sight(model: Any, folder: str) -> Any:
    """Let a model of a folder see, by the folder's processor."""
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise BadInput(f"no image processor could be loaded from {folder}: {text}") from None
    _check_patches(processor, read_patches(Path(folder), int(model.config.image_token_id)))
    return give_sight(model, processor)


def _check_patches(processor: Any, patches: Patches) -> None:
    """Refuse a processor that cuts pictures otherwise than its settings were read."""
    for width, height in ((97, 61), (640, 480), (30, 900)):
        given = processor([np.zeros((height, width, 3), np.uint8)], return_tensors="np")
        rows, columns = (int(n) // int(processor.merge_size) for n in given["image_grid_thw"][0][1:])
        if patches.scaled(width, height) != (columns * patches.side, rows * patches.side):
            raise BadInput(f"{type(processor).__name__} scales images in a way that recollect does not know")
