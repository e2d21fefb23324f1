"""Images are read within bounds; what is broken, too large or somewhere else is refused in one line."""

from __future__ import annotations

import base64
import copy
import io
import os
import struct
import zlib
from pathlib import Path

import PIL.Image
import PIL.ImageOps
import pytest

from recollect.images import image_files
from recollect.images.image_files import drawn, from_file, from_url, pixels, read_image, to_url
from recollect.types import BadInput


def png(width: int = 6, height: int = 4, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    PIL.Image.new(mode, (width, height), 1).save(file, "PNG")
    return file.getvalue()


def claims(width: int, height: int) -> bytes:
    """A file of few bytes that says it has so many pixels."""
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", zlib.compress(b"\0" * 100)) + part(b"IEND", b"")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1"])
def test_an_image_of_any_mode(mode: str) -> None:
    image = read_image(png(mode=mode), "f")
    assert (image.width, image.height, image.kind) == (6, 4, "png")
    assert pixels(image).mode == "RGB"


def saved(picture: PIL.Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(mode: str) -> None:
    """Black ink on nothing, as drawings and formulas are stored."""
    drawing = PIL.Image.new("RGBA", (6, 4), (0, 0, 0, 0))
    drawing.putpixel((2, 1), (0, 0, 0, 255))
    seen = pixels(read_image(saved(drawing.convert(mode)), "f"))
    assert (seen.mode, seen.getpixel((0, 0)), seen.getpixel((2, 1))) == ("RGB", (255, 255, 255), (0, 0, 0))


def test_grey_of_16_bits() -> None:
    scan = PIL.Image.new("I;16", (6, 4), 257 * 100)
    assert pixels(read_image(saved(scan), "f")).getpixel((1, 1)) == (100, 100, 100)


@pytest.mark.parametrize("held", range(1, 9))
def test_a_photo_is_upright(held: int) -> None:
    about, photo = PIL.Image.Exif(), PIL.Image.new("RGB", (48, 32), "white")
    about[0x0112] = held
    photo.paste("black", (0, 0, 8, 8))
    image = read_image(saved(photo, "JPEG", exif=about, quality=95), "f")
    upright = PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(image.data))).convert("RGB")
    assert (image.width, image.height) == upright.size == ((48, 32) if held < 5 else (32, 48))
    assert pixels(image).tobytes() == upright.tobytes()


def test_a_photo_whose_camera_says_nonsense() -> None:
    image = read_image(saved(PIL.Image.new("RGB", (48, 32)), "JPEG", exif=b"Exif\0\0nonsense"), "f")
    assert pixels(image).size == (image.width, image.height) == (48, 32)


def test_equal_files_are_one_object_while_somebody_holds_it() -> None:
    first = read_image(png(), "f")
    assert read_image(png(), "g") is first
    assert copy.deepcopy(first) is first
    assert "b'" not in repr(first)


@pytest.mark.parametrize("data", [b"", b"no image", png()[:30], png()[:-28], b"%PDF-1.7", b"GIF89a"])
def test_a_broken_file(data: bytes) -> None:
    with pytest.raises(BadInput, match=r"^rows, line 3: not an image that can be read") as caught:
        read_image(data, "rows, line 3")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [(7000, 7000), (100_000, 100_000), (1 << 30, 1 << 30)])
def test_a_bomb(size: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match=r"f: .*pixels|f: not an image"):
        read_image(claims(*size), "f")


@pytest.mark.parametrize("size", [(1, 1000), (1000, 1), (9000, 5000)])
def test_a_picture_of_a_size_that_no_model_takes(size: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match=r"f: .*(too narrow|are allowed)"):
        read_image(png(*size, "1"), "f")


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path, tmp_path / "pipe.png", Path("/dev/zero")):
        with pytest.raises(BadInput, match=r"^rows: .* is no file$"):
            from_file(path, "rows")


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(image_files, "MOST_BYTES", 50)
    (tmp_path / "a.png").write_bytes(png() + b"\0" * 60)
    with pytest.raises(BadInput, match="50"):
        from_file(tmp_path / "a.png", "f")
    with pytest.raises(BadInput, match="too many"):
        from_url("data:image/png;base64," + "A" * 200, "f")


def test_a_data_url_and_back() -> None:
    image = read_image(png(9, 3), "f")
    assert from_url(to_url(image), "f") is image


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.org/a.png", "not fetched"),
        ("data:text/plain;base64,AAAA", "begins with data:image"),
        ("data:image/png,AAAA", "begins with data:image"),
        ("data:image/png;base64,A!", "not base64"),
        ("data:image/png;base64," + base64.b64encode(b"text").decode(), "not an image"),
    ],
)
def test_other_addresses(url: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        from_url(url, "f")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"line 1: the image .*No such file"):
        from_file(tmp_path / "a.png", "rows.jsonl, line 1")


def test_what_was_drawn_is_read_as_the_same() -> None:
    image = drawn(PIL.Image.new("RGB", (5, 5), "red"))
    assert read_image(image.data, "f") is image
