"""Images in the contents of messages and in the columns of data rows, as marks in texts and a list of images.

Contents are texts, or lists of parts as OpenAI's clients and Hugging Face's data sets write them. In a text, `<image>`
stands for the next image of the row's column, as verl's data has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.images.image_files import MOST_IMAGES, MOST_IN_ALL, from_file, from_url, read_image
from recollect.types import IMAGE_MARK, BadInput, Image

PART_TYPES = ("image", "image_url", "input_image")
TEXT_TYPES = ("text", "input_text", "output_text")
COLUMNS = ("images", "image")
HOLDERS = ("bytes", "image", "image_url", "url", "path")  # of an image inside an object
SIZES = ("min_pixels", "max_pixels", "resized_width", "resized_height")  # of one image, in qwen-vl-utils' objects
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
PLACEHOLDER = "<image>"
NOTHING = object()


class ImageColumn:
    """The images of a row's column, taken one by one."""

    def __init__(self, values: Sequence[Any], place: str, folder: Path | None) -> None:
        self.values, self.place, self.folder = list(values), place, folder
        self.taken: list[Image] = []  # all images of the row so far, in order
        self.used = 0

    def next(self) -> Image:
        """The next image of the column."""
        if self.used == len(self.values):
            raise BadInput(f"{self.place}: there are more marks for images than images ({len(self.values)})")
        self.used += 1
        return self.take(self.values[self.used - 1])

    def take(self, value: Any) -> Image:
        """An image as data has it."""
        if len(self.taken) == MOST_IMAGES:
            raise BadInput(f"{self.place}: more than {MOST_IMAGES} images")
        self.taken.append(image_from(value, self.place, self.folder))
        if sum(image.width * image.height for image in self.taken) > MOST_IN_ALL:
            raise BadInput(f"{self.place}: the images have more than {MOST_IN_ALL:,} pixels together")
        return self.taken[-1]


def image_from(value: Any, place: str, folder: Path | None) -> Image:
    """An image from bytes, a data URL, a path beside the data file, or an object with one of them."""
    if isinstance(value, Mapping):
        _check_sizes(value, place)
        value = next((value[k] for k in HOLDERS if value.get(k) is not None), None)
        if isinstance(value, Mapping):
            return image_from(value, place, folder)
    if isinstance(value, bytes):
        return read_image(value, place)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{place}: an image is a data URL, a file or bytes, and not {str(value)[:60]!r}")
    if ":" in value[:12] and not value.startswith("file://"):
        return from_url(value, place)
    if folder is None:
        raise BadInput(f"{place}: an image is given as a data URL here, and not as {value[:60]!r}")
    path = Path(value.removeprefix("file://")).expanduser()
    return from_file(path if path.is_absolute() else folder / path, place)


def _check_sizes(about: Mapping[str, Any], place: str) -> None:
    """Refuse an image that asks for a size of its own."""
    if (name := next((name for name in SIZES if about.get(name) is not None), None)) is not None:
        raise BadInput(
            f"{place}: {name} of one image; the size of all is in the model's preprocessor_config.json (min_pixels, "
            "max_pixels): set it there, or scale the picture"
        )


def marked(content: Any, column: ImageColumn) -> Any:
    """A message's content with its images taken out: a text with a mark for each; what is no content is left alone."""
    if isinstance(content, str):
        first, *others = content.split(PLACEHOLDER) if column.values else [content]
        for _ in others:
            column.next()
        return IMAGE_MARK.join(map(_unmarked, (first, *others)))
    if not _is_list(content) or not any(_is_image(part) for part in content):
        return content
    return "".join(_part(part, column) for part in content)


def _part(part: Any, column: ImageColumn) -> str:
    if isinstance(part, str):
        return str(marked(part, column))
    if _is_image(part):
        _check_sizes(part, column.place)
        value = next((part[k] for k in (*PART_TYPES, *HOLDERS) if part.get(k) is not None), NOTHING)
        column.next() if value is NOTHING else column.take(value)
        return IMAGE_MARK
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return _unmarked(part["text"])
    raise BadInput(f"{column.place}: a part of a message is neither text nor an image: {str(part)[:80]}")


def _unmarked(text: str) -> str:
    """A text whose own object replacement characters are not taken for images."""
    return text.replace(IMAGE_MARK, "\ufffd")


def _is_image(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return False
    kind = part.get("type")
    return kind in PART_TYPES if isinstance(kind, str) else len(part) == 1 and next(iter(part)) in PART_TYPES


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def column_of(row: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
    """The column of a row that holds images, and its values; None where there is none."""
    for name in COLUMNS:
        value = row.get(name)
        values: list[Any] = [] if value is None else [*value] if _is_list(value) else [value]
        if values and all(_may_be_image(v) for v in values):
            return name, values
    return None


def _may_be_image(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith("data:image/") or value.lower().endswith(SUFFIXES)
    return isinstance(value, bytes) or (isinstance(value, Mapping) and any(name in value for name in HOLDERS))


def without_images(
    row: Mapping[str, Any], names: Sequence[str], place: str
) -> tuple[dict[str, Any], tuple[Image, ...]]:
    """A row whose prompt (in one of some fields) holds marks in place of images, and the images in order.

    Images of a column that no mark asks for stand before the user's last words.
    """
    found, changed = column_of(row), dict(row)
    if found is None and not any(holds_image(row.get(name)) for name in names):
        return changed, ()
    path = Path(place.partition(", ")[0])
    column = ImageColumn(found[1] if found else [], place, path.parent)
    if found:
        del changed[found[0]]
    for name in names:
        if name in row:
            changed[name] = _all_marked(row[name], column)
    left = len(column.values) - column.used
    if left and column.used:
        raise BadInput(f"{place}: {len(column.values)} images in a column, and {column.used} marks for them")
    if left:
        marks = "".join(IMAGE_MARK for _ in range(left))
        for _ in range(left):
            column.next()
        name = next((n for n in names if n in row), "")
        changed[name] = _before_last(changed.get(name), marks, place)
    return changed, tuple(column.taken)


def holds_image(value: Any) -> bool:
    """Whether a content, or messages, hold a part that is an image."""
    if isinstance(value, Mapping):
        return _is_image(value) or holds_image(value.get("content", value.get("value")))
    return _is_list(value) and any(holds_image(item) for item in value)


def _all_marked(value: Any, column: ImageColumn) -> Any:
    """A prompt, or messages, with marks; parts without messages around them are one prompt."""
    if not _is_list(value):
        return marked(value, column)
    if any(_is_image(part) for part in value):
        return marked(value, column)
    return [_message(item, column) for item in value]


def _message(item: Any, column: ImageColumn) -> Any:
    key = next((k for k in ("content", "value") if isinstance(item, Mapping) and k in item), None)
    if key is None:
        return item
    before, content = len(column.taken), marked(item[key], column)
    if len(column.taken) > before and (item.get("role") or item.get("from")) in ("assistant", "gpt"):
        raise BadInput(f"{column.place}: a reply holds an image, and models here say text alone")
    return {**item, key: content}


def _before_last(value: Any, marks: str, place: str) -> Any:
    """A prompt with marks before what the user says last."""
    if isinstance(value, str):
        return marks + value
    if _is_list(value):
        rows = list(value)
        for i in reversed(range(len(rows))):
            item = rows[i]
            if isinstance(item, Mapping) and (item.get("role") or item.get("from")) in ("user", "human"):
                key = "content" if "content" in item else "value"
                if isinstance(item.get(key), str):
                    rows[i] = {**item, key: marks + item[key]}
                    return rows
    raise BadInput(f"{place}: there are images, and no words of the user beside which they could stand")


def shared_out(texts: Sequence[str], images: Sequence[Image]) -> Iterator[tuple[Image, ...]]:
    """For each of some texts the images that its marks stand for."""
    start = 0
    for text in texts:
        count = text.count(IMAGE_MARK)
        yield tuple(images[start : start + count])
        start += count
