"""Loading models and tokenizers from folders or the hub, with errors that say what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.chat import Renderer, use_template
from recollect.files.reading import read_json
from recollect.images.patches import read_patches
from recollect.models.checkpoints import EMBEDDED, SMOLLM2, find_checkpoint, is_model
from recollect.models.checksums import verify_checksums
from recollect.models.gguf_convert import gguf_folder
from recollect.models.gguf_header import is_gguf
from recollect.models.kind_check import loader_of, refuse_other_kinds, sees, text_attention
from recollect.models.lora import adapter_base, merge_adapter
from recollect.models.scratch_models import SCRATCH
from recollect.models.size_check import refuse_implausible
from recollect.models.smollm2 import smollm2_folder
from recollect.models.tiny import TEMPLATE, TINY, TOOLS_TEMPLATE
from recollect.models.tiny_vision import VisionScratch
from recollect.types import BadInput

NAME = "recollect"  # of our attention (models/attention.py)


def model_path(path: str) -> str:
    """The folder or hub name behind a model path; ``tiny`` is the embedded model. It may hold a LoRA adapter.

    Of a run it is the newest checkpoint, of ``smollm2`` and of a GGUF file the plain folder that was made of it.
    """
    if path == EMBEDDED:
        return str(TINY)
    path = find_checkpoint(path)[0]
    folder = Path(path).expanduser()
    if path == SMOLLM2 and not is_model(folder):
        return str(smollm2_folder())
    if is_gguf(path):
        return str(gguf_folder(path))
    if folder.exists():
        if folder.is_dir() and adapter_base(path):
            return str(folder)
        if not folder.is_dir() or not (folder / "config.json").is_file():
            if folder.is_dir() and (inside := sorted(folder.glob("*.gguf"))):
                raise BadInput(f"{path} has no config.json; name the file in it: {inside[0]}")
            raise BadInput(f"{path} is not a model folder: it has no config.json")
        if not isinstance(read_json(folder / "config.json", what="configuration of a model"), dict):
            raise BadInput(f"{path}/config.json is not the configuration of a model: it holds no object")
        refuse_implausible(folder)
        return str(folder)
    if path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise BadInput(f"no model folder at {path} (a hub name looks like owner/name)")
    return path


def load_tokenizer(path: str, template: str | None = None) -> Any:
    """The tokenizer of a model, with a chat template by name or its own."""
    from transformers import AutoTokenizer

    if path in SCRATCH:
        return use_template(SCRATCH[path].tokenizer(), template)
    path = find_checkpoint(path)[0]
    base = adapter_base(path)
    if base is not None and not (Path(path).expanduser() / "tokenizer_config.json").is_file():
        return load_tokenizer(base, template)

    _refuse_without_words(path)
    try:
        folder = model_path(path)
        found = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        return use_template(_as_declared(folder, found), template)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"no tokenizer could be loaded from {path}: {_first_line(error)}") from None


VOCABULARIES = ("tokenizer.", "vocab", "merges", "spiece", "sentencepiece", "tekken")  # how their files begin


def _refuse_without_words(path: str) -> None:
    """Refuse a folder without a vocabulary, from which the library would make an empty tokenizer."""
    folder = Path(model_path(path))
    if folder.is_dir() and not any(file.name.startswith(VOCABULARIES) for file in folder.iterdir()):
        raise BadInput(f"{path} has no tokenizer: put the tokenizer.json of its model there")


GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")  # kinds that are all in their tokenizer.json
PROBE = "It's 1,024 tests of  a tokenizer:\n\tnaïve, 東京, <|x|> "


def _as_declared(path: str, found: Any) -> Any:
    """The tokenizer that a folder declares, if the library's choice by model type makes other ids."""
    from transformers import PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    declared = get_tokenizer_config(path).get("tokenizer_class")
    if type(found) is PreTrainedTokenizerFast or declared not in GENERIC:
        return found
    own = PreTrainedTokenizerFast.from_pretrained(path)
    text = PROBE + " ".join(sorted(own.get_vocab())[:100])
    same = own.encode(text, add_special_tokens=False) == found.encode(text, add_special_tokens=False)
    return found if same else own


def load_renderer(path: str, template: str | None = None) -> Renderer:
    """The renderer of a model's prompts; of one that sees, of its images too."""
    tokenizer, config = load_tokenizer(path, template), load_config(path)
    if not sees(config):
        return Renderer(tokenizer)
    if path in SCRATCH and isinstance(made := SCRATCH[path], VisionScratch):
        return Renderer(tokenizer, made.patches())
    folder = Path(processor_folder(path))
    if not folder.is_dir():
        raise BadInput(f"{path} reads images; name the folder that the model was saved to, with its processor")
    return Renderer(tokenizer, read_patches(folder, int(config.image_token_id)))


def processor_folder(path: str) -> str:
    """Where a model's processor is: beside its weights, or those of the base of an adapter."""
    path = find_checkpoint(path)[0]
    base = adapter_base(path)
    return model_path(path) if base is None else processor_folder(base)


def speaks_embedded(path: str) -> bool:
    """True for models with the chat template of the embedded one, which know only its made-up documents."""
    return path in SCRATCH or load_tokenizer(path).chat_template in (TEMPLATE, TOOLS_TEMPLATE)


def load_config(path: str) -> Any:
    """The transformers configuration of a model that is on disk or made anew."""
    from transformers import AutoConfig

    if path in SCRATCH:
        return SCRATCH[path].config()
    path = find_checkpoint(path)[0]
    base = adapter_base(path)
    if base is not None:
        return load_config(base)

    try:
        found = AutoConfig.from_pretrained(model_path(path), trust_remote_code=False)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"no model configuration could be loaded from {path}: {_first_line(error)}") from None
    refuse_other_kinds(found, path)
    return found


def load_model(path: str, dtype: Any, device: str = "cpu", attention: str | None = NAME) -> Any:
    """A causal language model with our attention (None: the library's), an adapter merged into its base."""
    import torch

    from recollect.models.attention import register
    from recollect.models.vision import load_sight
    from recollect.models.weights_check import check_complete, check_finite

    register()
    path = find_checkpoint(path)[0]
    base = adapter_base(path)
    try:
        if base is not None:
            verify_checksums(Path(path).expanduser())
            merged = merge_adapter(load_model(base, torch.float32, attention=attention), path)
            check_finite(merged.named_parameters(), path)
            return merged.to(device, dtype)
        config = load_config(path)
        seeing = sees(config)
        folder = model_path(path)
        verify_checksums(Path(folder))
        model, found = loader_of(config).from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=attention if attention is None or not seeing else text_attention(attention),
            output_loading_info=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # they are refused by name, below
        )
        check_complete(model, found, path)
        if seeing and attention is not None:
            load_sight(model, folder)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"no model could be loaded from {path}: {_first_line(error)}") from None
    return owned(model.to(device))


def owned(model: Any) -> Any:
    """The model with weights in memory of its own, copied one by one: loaded ones are the file itself, mapped.

    Otherwise cutting the file would end this process, and writing to it would change the model's answers.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()
    return model


def context_window(config: Any) -> int:
    """How many tokens the model was made for."""
    return int(getattr(config.get_text_config(decoder=True), "max_position_embeddings", 0) or 4096)


def _first_line(error: BaseException) -> str:
    """What an error says in a line: of weights that do not fit, the first of them."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("size mismatch")), [*lines, type(error).__name__][0])
