"""GGUF files are models like any other: converted once, dequantised, or refused in a line."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch

from recollect.models.export import export_model
from recollect.models.gguf_convert import gguf_folder, save_gguf
from recollect.models.gguf_header import MOST_ITEMS, MOST_KEYS, MOST_TENSORS, is_gguf, read_header
from recollect.models.load import load_config, load_model, load_tokenizer, model_path
from recollect.types import BadInput
from tests.commands import run as run_command
from tests.models.gguf_files import KINDS, TEMPLATE, weights, write_gguf


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "recollect" / "models"


def unpermuted(name: str, values: torch.Tensor) -> torch.Tensor:
    """The rows of queries and keys as transformers orders them; GGUF's Llama files have them by pairs."""
    heads = {"attn_q": 4, "attn_k": 2}.get(name.split(".")[-2])
    if heads is None:
        return values
    return values.reshape(heads, values.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(values.shape)


NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def plain_name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"
    return {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[parts[0]]


@pytest.mark.parametrize(
    ("kind", "stored", "error"),
    [
        (KINDS.F32, "float32", 0.0),
        (KINDS.F16, "float16", 0.001),
        (KINDS.BF16, "bfloat16", 0.01),
        (KINDS.Q8_0, "bfloat16", 0.01),
        (KINDS.Q5_0, "bfloat16", 0.05),
        (KINDS.Q4_0, "bfloat16", 0.1),
        (KINDS.Q4_1, "bfloat16", 0.1),
    ],
)
def test_weights_come_back_as_the_type_allows(kind: KINDS, stored: str, error: float, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", kind)
    assert json.loads((Path(model_path(str(file))) / "config.json").read_text())["dtype"] == stored
    found = dict(load_model(str(file), torch.float32, attention=None).named_parameters())
    for name, values in weights().items():
        wanted = unpermuted(name, torch.from_numpy(values))
        assert (found[plain_name(name)] - wanted).abs().max() <= error * wanted.abs().max() + 1e-7, name


def test_the_tokenizer_and_the_chat_template_are_the_files_own(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(write_gguf(tmp_path / "m.gguf")))
    assert tokenizer.chat_template == TEMPLATE
    assert (tokenizer.eos_token, tokenizer.bos_token) == ("<|im_end|>", "<|im_start|>")
    assert tokenizer.model_max_length == 256
    text = "hello  42 naïve, 東京\n<|im_end|>"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.tokenize("hello  42") == ["hello", "ĠĠ", "4", "2"]  # smollm: digits are words of their own


def test_words_are_split_as_the_file_says(tmp_path: Path) -> None:
    gpt2 = load_tokenizer(str(write_gguf(tmp_path / "m.gguf", pre="gpt-2")))
    assert gpt2.tokenize("hello  42") == ["hello", "Ġ", "Ġ", "4", "2"]


def test_a_way_of_splitting_that_nobody_knows_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gguf_folder(str(write_gguf(tmp_path / "m.gguf", pre="martian")))
    assert "martian" in capsys.readouterr().err


def test_a_file_is_converted_once_by_its_content(tmp_path: Path, own_cache: Path) -> None:
    said: list[str] = []
    file = write_gguf(tmp_path / "m.gguf")
    first = gguf_folder(str(file), said.append)
    copy = tmp_path / "other.gguf"
    copy.write_bytes(file.read_bytes())
    assert gguf_folder(str(file), said.append) == gguf_folder(str(copy), said.append) == first
    assert len(said) == 1
    assert [p.name for p in own_cache.iterdir()] == [first.name]  # and nothing temporary
    write_gguf(file, KINDS.Q8_0)
    assert gguf_folder(str(file), said.append) != first


def test_a_damaged_conversion_is_made_again(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    weights_file = gguf_folder(str(file)) / "model.safetensors"
    whole = weights_file.read_bytes()
    weights_file.write_bytes(whole[: len(whole) // 2])
    assert gguf_folder(str(file)) / "model.safetensors" == weights_file
    assert weights_file.read_bytes() == whole


def test_a_folder_of_its_own_has_a_card_and_may_be_edited(tmp_path: Path) -> None:
    file, out = write_gguf(tmp_path / "m.gguf", KINDS.Q4_1), tmp_path / "out"
    assert "Q4_1" in save_gguf(file, out)
    card = (out / "README.md").read_text()
    assert "Q4_1" in card
    assert "license: apache-2.0" in card
    assert "m.gguf" in card
    (out / "README.md").write_text("mine")
    load_model(str(out), torch.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_type_of_a_folder_can_be_chosen(dtype: str, tmp_path: Path) -> None:
    save_gguf(write_gguf(tmp_path / "m.gguf", KINDS.Q8_0), tmp_path / "out", dtype)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == dtype


def test_commands_take_a_file_where_they_take_a_model(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    (tmp_path / "notes.txt").write_text("hello hello. " * 20)
    small = "recurrent.memory.config."
    limits = [
        f"{small}{key}=8" for key in ("max_memorization_length", "max_final_response_length", "max_prompt_length")
    ]
    style = [f"{small}style=plain", f"{small}chunk_size=48"]
    done = run_command("ask", str(file), "--document", str(tmp_path / "notes.txt"), "hello", *limits, *style)
    assert done.returncode == 0, done.stderr
    export_model(str(file), tmp_path / "exported")
    load_model(str(tmp_path / "exported"), torch.float32)
    done = run_command("doctor", str(file))
    assert "llama" in done.stdout


def test_a_file_is_known_by_its_name_or_its_first_bytes(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    plain = tmp_path / "blob"
    plain.write_bytes(file.read_bytes())
    assert is_gguf(str(file))
    assert is_gguf(str(plain))
    assert is_gguf("missing.gguf")
    assert not is_gguf(str(tmp_path))
    assert not is_gguf("owner/name")
    assert load_config(str(plain)).model_type == "llama"


def cut(data: bytes) -> bytes:
    return data[: len(data) - 4096]


def cut_in_metadata(data: bytes) -> bytes:
    return data[:200]


def numbers_at(place: int, value: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + struct.pack("<Q", value) + data[place + 8 :]


BAD = {
    "cut off": (cut, "cut off"),
    "cut in its metadata": (cut_in_metadata, "ends in the middle"),
    "empty": (lambda data: b"", "not a GGUF"),
    "text": (lambda data: b"hello, I am text" * 10, "not a GGUF"),
    "only the first bytes": (lambda data: data[:4], "not a GGUF"),
    "another version": (lambda data: data[:4] + struct.pack("<I", 1) + data[8:], "version 1"),
    "big-endian": (lambda data: data[:4] + struct.pack(">I", 3) + data[8:], "version"),
    "too many tensors": (numbers_at(8, MOST_TENSORS + 1), "tensors"),
    "too many keys": (numbers_at(16, MOST_KEYS + 1), "keys of metadata"),
    "more tensors than there are": (numbers_at(8, 1000), "GGUF"),
    "no tensors": (numbers_at(8, 0), "no weights"),
    "a name of exabytes": (numbers_at(24, 1 << 62), "bytes of a name"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_file_is_refused_in_a_line(name: str, tmp_path: Path, own_cache: Path) -> None:
    spoil, why = BAD[name]
    file = write_gguf(tmp_path / "m.gguf")
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(BadInput, match=why) as caught:
        model_path(str(file))
    assert "\n" not in str(caught.value)
    assert not own_cache.exists() or not any(own_cache.iterdir())


def metadata_file(path: Path, *values: bytes) -> Path:
    body = b"".join(struct.pack("<Q", len(k)) + k + v for k, v in ((b"key%d" % i, v) for i, v in enumerate(values)))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, len(values)) + body)
    return path


@pytest.mark.parametrize(
    "value",
    [
        struct.pack("<IIQ", 9, 4, MOST_ITEMS + 1),  # a list that claims more than is read
        struct.pack("<IIQ", 9, 4, MOST_ITEMS),  # one that claims more than the file has
        struct.pack("<IIQ", 9, 8, MOST_ITEMS),
        struct.pack("<IIQ", 9, 9, 1),  # lists inside lists
        struct.pack("<IQ", 8, 1 << 40),  # a text
        struct.pack("<IQ", 8, 4) + b"\xff\xfe\xfd\xfc",
        struct.pack("<I", 77),  # a type that there is not
    ],
)
def test_metadata_that_claims_too_much_is_refused_at_once(value: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"m\.gguf"):
        read_header(metadata_file(tmp_path / "m.gguf", value))


@pytest.mark.parametrize(
    ("claim", "value"),
    [("block_count", 10**9), ("embedding_length", 10**6), ("vocab_size", 2**31), ("attention.head_count", 10**7)],
)
def test_a_larger_model_than_there_are_weights_for_is_refused(claim: str, value: int, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=claim):
        model_path(str(write_gguf(tmp_path / "m.gguf", **{claim: value})))


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="architecture martian, which transformers"):
        model_path(str(write_gguf(tmp_path / "m.gguf", architecture="martian")))


def test_a_type_that_cannot_be_dequantised_is_named(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    data = file.read_bytes()
    at = data.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8
    for number, name in ((24, "I8"), (4, "4"), (999, "999")):
        file.write_bytes(data[:at] + struct.pack("<I", number) + data[at + 4 :])
        with pytest.raises(BadInput, match=f"of type {name} "):
            model_path(str(file))


def test_missing_weights_are_named_and_nothing_is_left(tmp_path: Path, own_cache: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", leave_out="blk.1.ffn_up.weight")
    with pytest.raises(BadInput, match="lacks weights"):
        model_path(str(file))
    with pytest.raises(BadInput, match="lacks weights"):
        save_gguf(file, tmp_path / "out")
    assert not any(own_cache.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "m.gguf"]


def test_a_file_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no tokenizer"):
        model_path(str(write_gguf(tmp_path / "m.gguf", tokenizer=False)))


def test_an_end_token_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="eos_token_id=70000"):
        model_path(str(write_gguf(tmp_path / "m.gguf", eos=70_000)))


def test_a_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="one of 3 parts"):
        read_header(split_file(tmp_path))


def split_file(folder: Path) -> Path:
    out = gguf.GGUFWriter(str(folder / "m.gguf"), "llama")
    out.add_uint16("split.count", 3)
    out.add_tensor("output_norm.weight", weights()["output_norm.weight"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return folder / "m.gguf"


@pytest.mark.parametrize("name", ["missing.gguf", "folder"])
def test_what_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match=name):
        model_path(str(tmp_path / name))


def test_a_folder_with_a_file_in_it_says_which(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    with pytest.raises(BadInput, match="name the file in it"):
        model_path(str(tmp_path))


def test_without_the_package_the_command_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(BadInput, match=r"pip install 'recollect-rl\[gguf\]'"):
        model_path(str(file))


def test_a_folder_that_holds_something_is_not_written_to(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    with pytest.raises(BadInput, match="not empty"):
        save_gguf(file, tmp_path)


def test_the_command_line_ends_with_a_line_and_code_2(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + b"\0" * 100)
    for words in (
        ("model", "gguf", str(file), "--out", str(tmp_path / "out")),
        ("ask", str(file), "--document", __file__, "what?"),
        ("train", "--dry-run", f"actor_rollout_ref.model.path={file}"),
        ("export", str(file), "--out", str(tmp_path / "out")),
    ):
        done = run_command(*words)
        assert done.returncode == 2, (words, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert "m.gguf" in done.stderr
