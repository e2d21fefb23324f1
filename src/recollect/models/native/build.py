"""Compiling a source file once by the machine's own compiler, and calling what is in it.

Without a compiler there are no functions, and callers use the operations of torch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fPIC", "-fopenmp")
HEADERS = Path(__file__).parent
_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_KINDS = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float}


@functools.cache
def function(source: Path, name: str, arguments: str, dtype: torch.dtype, device: str) -> Any | None:
    """A compiled function for numbers of this kind, or None where there is none.

    ``arguments`` has a letter for each: p pointer, i integer, f float.
    """
    library = _library(source) if device == "cpu" and dtype in _DTYPES else None
    if library is None:
        return None
    address = ctypes.c_void_p.in_dll(library, f"{name}_{_DTYPES[dtype]}").value or 0
    return ctypes.CFUNCTYPE(None, *(_KINDS[a] for a in arguments))(address)


@functools.cache
def _library(source: Path) -> ctypes.CDLL | None:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    try:
        return compiler and ctypes.CDLL(str(_compiled(source, compiler)))  # type: ignore[return-value]
    except (OSError, subprocess.SubprocessError):
        return None


def _compiled(source: Path, compiler: str) -> Path:
    """The library's file, made unless an equal one was made before on an equal machine."""
    openmp = next(iter(sorted((Path(torch.__file__).parent / "lib").glob("libgomp*"))), None)  # share torch's threads
    headers = sorted({*HEADERS.glob("*.h"), *source.parent.glob("*.h")})
    key = [*(p.read_text() for p in (source, *headers)), *FLAGS, compiler, str(openmp), _processor()]
    target = _folder() / f"{source.stem}-{hashlib.sha256(chr(0).join(key).encode()).hexdigest()[:16]}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            run = functools.partial(subprocess.run, check=True, capture_output=True, timeout=60, cwd=work)
            run([compiler, *FLAGS, f"-I{HEADERS}", "-c", str(source), "-o", "made.o"])
            run([compiler, "-shared", "made.o", "-o", "made.so", str(openmp) if openmp else "-fopenmp"])
            (Path(work) / "made.so").replace(target)
    return target


def _folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recollect"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="recollect-"))


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next((line for line in f if line.startswith("flags")), "")
    except OSError:
        return platform.processor()
