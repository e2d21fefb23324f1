"""A Qwen2.5-VL folder as the hub has it: flat configuration, older names of tensors, bounds of pixels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from recollect.images.image_files import pixels
from recollect.images.image_ids import FIRST, plain_ids
from recollect.models.load import load_model, load_renderer
from recollect.packing.micro_batch import pack
from recollect.packing.tree import build_tree
from recollect.training.learner.forward import logprobs_and_entropy
from recollect.types import IMAGE_MARK, Message
from tests.seeing import pictures, save_seeing

TEXT = {
    "rope_theta": 1e4,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "sliding_window": 32768,
    "max_window_layers": 70,
    "tie_word_embeddings": True,
}
TOWER = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 32,
    "in_chans": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "spatial_patch_size": 14,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [1],
    "tokens_per_second": 2,
}
PROCESSOR = {
    "min_pixels": 3136,
    "max_pixels": 50176,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}


def save_as_the_hub(out: Path) -> Path:
    """Such a folder, with random weights."""
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForImageTextToText

    save_seeing(out)
    about = json.loads((out / "config.json").read_text())
    text = {k: v for k, v in about["text_config"].items() if k not in ("model_type", "rope_parameters", "layer_types")}
    ids = {k: v for k, v in about.items() if k.endswith("_id")}
    kind = {"architectures": about["architectures"], "model_type": about["model_type"]}
    (out / "config.json").write_text(json.dumps({**text, **ids, **kind, **TEXT, "vision_config": TOWER}))
    (out / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(out), dtype=torch.float32)
    older = {}
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            name = name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")
            older[name] = tensor * (1.0 if tensor.ndim == 1 else 3.0)
    save_file(older, out / "model.safetensors", metadata={"format": "pt"})
    return out


def test_a_folder_of_the_hub(tmp_path: Path) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageTextToText

    folder = save_as_the_hub(tmp_path / "model")
    renderer, ours = load_renderer(str(folder), "qwen2.5-vl"), load_model(str(folder), torch.float32)
    images = pictures(5, ((90, 150), (600, 400), (10, 12)))
    asked = renderer.prompt([Message("user", f"One {IMAGE_MARK}{IMAGE_MARK} two {IMAGE_MARK}?", images)])
    row = np.array([*asked, *renderer.reply("Three.")])
    mask = (np.arange(len(row)) > 0) & (row < FIRST)
    packed = pack([build_tree([0], [row])], [mask], [0])
    found = logprobs_and_entropy(ours, packed)[0][packed.entry_target]

    library = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    given = AutoImageProcessor.from_pretrained(folder, backend="pil")([pixels(i) for i in images], return_tensors="pt")
    ids = torch.from_numpy(plain_ids(row))[None]
    kinds = (ids == library.config.image_token_id).int()
    logits = library(input_ids=ids, mm_token_type_ids=kinds, **given).logits[0].log_softmax(-1)
    expected = logits[:-1].gather(-1, ids[0, 1:, None])[:, 0][torch.from_numpy(mask[1:])]
    assert kinds.sum() == sum(renderer.patches.grid(image).size for image in images)  # type: ignore[union-attr]
    torch.testing.assert_close(found, expected[packed.entry], atol=1e-5, rtol=1e-5)
