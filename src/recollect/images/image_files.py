"""Images from files, data URLs and bytes, with bounds: nothing is decoded that is not small enough to be.

Equal files are one `Image` while anybody holds it. Pillow decodes; it comes with the extra `vision`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import stat
import warnings
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from recollect.types import BadInput, Image

MOST_BYTES = 20_000_000  # of an image's file
MOST_PIXELS = 40_000_000
MOST_RATIO = 200  # of an image's sides; the processors of models that see take no more
MOST_IMAGES = 64  # in one conversation of a data row or a request
MOST_IN_ALL = 200_000_000  # pixels of all of them
NARROWEST = f"{MOST_RATIO} : 1 is allowed"
KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
ORIENTATION = 0x0112  # the tag in which a camera says how it was held
TURNS = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
_DATA = "data:image/"

_known: WeakValueDictionary[str, Image] = WeakValueDictionary()  # by digest


def pillow() -> Any:
    """Pillow's module."""
    try:
        import PIL.Image
    except ImportError:
        raise BadInput("images need Pillow, which is not installed; run: pip install 'recollect-rl[vision]'") from None
    return PIL.Image


def read_image(data: bytes, place: str) -> Image:
    """The image in a file's bytes; what is broken, too large or of an unknown format is refused in one line."""
    if len(data) > MOST_BYTES:
        raise BadInput(f"{place}: the image's file has {len(data):,} bytes; {MOST_BYTES:,} are allowed")
    digest = hashlib.sha256(data).hexdigest()
    if (known := _known.get(digest)) is not None:
        return known
    library = pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.DecompressionBombWarning)  # we have a bound of our own
            with library.open(io.BytesIO(data), formats=KINDS) as found:
                width, height = found.size
                check_size(width, height, place)
                found.load()
                if _held(found) > 4:  # on its side
                    width, height = height, width
                kind = str(found.format).lower()
    except BadInput:
        raise
    except library.DecompressionBombError:
        raise BadInput(f"{place}: the image has far too many pixels; {MOST_PIXELS:,} are allowed") from None
    except Exception as error:
        why = " ".join(str(error).split())[:120] if isinstance(error, OSError) and "BytesIO" not in str(error) else ""
        known_kinds = ", ".join(KINDS)
        raise BadInput(f"{place}: not an image that can be read ({why or f'known are {known_kinds}'})") from None
    return _kept(Image(data, digest, width, height, kind))


def check_size(width: int, height: int, place: str) -> None:
    """Refuse a picture that is too large, or too narrow, or that has no pixels."""
    if width * height > MOST_PIXELS:
        raise BadInput(f"{place}: the image has {width} × {height} pixels; {MOST_PIXELS:,} are allowed")
    if max(width, height) > MOST_RATIO * min(width, height):
        raise BadInput(f"{place}: an image of {width} × {height} pixels is too narrow; {NARROWEST}")


def _kept(image: Image) -> Image:
    return _known.setdefault(image.digest, image)


def drawn(picture: Any) -> Image:
    """The image of something that Pillow has drawn."""
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=1)
    data = file.getvalue()
    return _kept(Image(data, hashlib.sha256(data).hexdigest(), picture.width, picture.height))


def pixels(image: Image) -> Any:
    """Pillow's picture of an image as people see it, in red, green and blue."""
    library = pillow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", library.DecompressionBombWarning)
        with library.open(io.BytesIO(image.data), formats=KINDS) as found:
            return in_colours(found)


def _held(picture: Any) -> int:
    """How a camera was held, 1 to 8; 1: upright."""
    try:
        found = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # what is there besides the picture may be broken
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def in_colours(picture: Any) -> Any:
    """A picture in red, green and blue: upright, on white where it is transparent, 16 bits of grey as 8."""
    turn = _held(picture)
    upright = picture.transpose(pillow().Transpose[TURNS[turn - 2]]) if turn > 1 else picture
    if upright.mode.startswith("I"):
        upright = upright.convert("I").point(lambda value: value / 257).convert("L")
    if not upright.has_transparency_data:
        return upright.convert("RGB")
    clear = upright.convert("RGBA")
    paper = pillow().new("RGBA", clear.size, "white")
    return pillow().alpha_composite(paper, clear).convert("RGB")


def from_file(path: Path, place: str) -> Image:
    """The image in a file."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a device or a pipe may have no end
            raise BadInput(f"{place}: {path} is no file")
        if found.st_size > MOST_BYTES:
            raise BadInput(f"{place}: {path.name} has {found.st_size:,} bytes; an image may have {MOST_BYTES:,}")
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{place}: the image {path} cannot be read: {error.strerror or error}") from None
    return read_image(data, f"{place}, {path.name}")


def from_url(url: str, place: str) -> Image:
    """The image in a data URL; nothing is fetched from anywhere."""
    if not url.startswith("data:"):
        raise BadInput(f"{place}: images are given as data URLs or files, not fetched from {url[:60]!r}")
    head, comma, body = url.partition(",")
    if not comma or not head.startswith(_DATA) or not head.endswith(";base64"):
        raise BadInput(f"{place}: an image's data URL begins with data:image/…;base64, and not with {url[:40]!r}")
    if len(body) > MOST_BYTES * 4 // 3 + 4:
        raise BadInput(f"{place}: the image's data URL has {len(body):,} characters, which is too many")
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(f"{place}: the image's data URL is not base64") from None
    return read_image(data, place)


def to_url(image: Image) -> str:
    """An image as a data URL."""
    return f"{_DATA}{image.kind};base64,{base64.b64encode(image.data).decode()}"
