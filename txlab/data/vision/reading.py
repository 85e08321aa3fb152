"""Where pictures come from: folders, Parquet files, the digits that scikit-learn brings along."""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from txlab.core.errors import RequestError
from txlab.data.collection import OnError
from txlab.data.vision.picture import SUFFIXES, Picture

T = TypeVar("T")


@dataclass(frozen=True)
class Item(Generic[T]):
    """A picture and what is known about it: its class, or a sentence."""

    picture: Picture
    about: T
    mark: bytes
    """Tells the item from others; decides whether it is held out."""


def digits() -> list[Item[str]]:
    """The 1,797 handwritten digits, 8 x 8 pixels, of scikit-learn (Alpaydin and Kaynak 1998)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise RequestError(
            "data=images without data.path takes the digits of scikit-learn, which is not "
            "installed: pip install scikit-learn, or give data.path=FOLDER."
        ) from error
    from PIL import Image

    found: Any = load_digits()
    items = []
    for number, (table, label) in enumerate(zip(found.images, found.target, strict=True)):
        stream = io.BytesIO()
        Image.fromarray((table * (255 / 16)).round().astype("uint8")).save(stream, "PNG")
        picture = Picture(f"scikit-learn's digit {number}", stream.getvalue())
        items.append(Item(picture, str(label), _mark(stream.getvalue())))
    return items


def classes(path: str) -> Iterator[Item[str]]:
    """Pictures of a folder with a folder for each class, or of a Parquet file (image, label)."""
    place = Path(path)
    if place.suffix == ".parquet":
        yield from (Item(p, str(label), m) for p, label, m in _table(place, "label"))
        return
    if not place.is_dir():
        raise RequestError(
            f"data.path={path}: expected a folder with a folder of pictures for each class, or a "
            ".parquet file with the columns image and label."
        )
    folders = sorted(f for f in place.iterdir() if f.is_dir() and not f.name.startswith("."))
    if not folders:
        raise RequestError(f"data.path={path}: the folder has no folders, one for each class.")
    for folder in folders:
        files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES)
        if not files:
            raise RequestError(f"{folder}: there is no picture ({', '.join(SUFFIXES)}) in it.")
        for file in files:
            name = file.relative_to(place).as_posix()
            yield Item(Picture(str(file)), folder.name, _mark(name.encode()))


def captioned(path: str) -> Iterator[Item[str]]:
    """The pictures of a Parquet file (image, text), or those that captions.jsonl names.

    A line of it: {"image": file beside it, "text": sentence}.
    """
    place = Path(path)
    if place.suffix == ".parquet":
        yield from (Item(p, text, m) for p, text, m in _table(place, "text"))
        return
    lines = place / "captions.jsonl" if place.is_dir() else place
    try:
        with open(lines, encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield _line(lines, number, line)
    except OSError as error:
        raise RequestError(
            f"data.path={path}: expected a folder with captions.jsonl and the pictures it names, "
            f"or a .parquet file with the columns image and text; {lines}: {error.strerror}."
        ) from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{lines}, byte {error.start}: no UTF-8.") from error


def _line(file: Path, number: int, line: str) -> Item[str]:
    where = f"{file}, line {number}"
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise RequestError(f"{where}: no JSON: {error}.") from error
    for name in ("image", "text"):
        if not isinstance(entry, dict) or not isinstance(entry.get(name), str) or not entry[name]:
            raise RequestError(
                f'{where}: expected {{"image": FILE, "text": SENTENCE}}, no {name!r} is there.'
            )
    image = file.parent / entry["image"]
    return Item(Picture(str(image)), entry["text"], _mark(line.strip().encode()))


def _table(file: Path, about: str) -> Iterator[tuple[Picture, Any, bytes]]:
    """(picture, column `about`, mark) of each row; images as bytes, or as the hub writes them."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as table:
            missing = [name for name in ("image", about) if name not in table.schema_arrow.names]
            if missing:
                raise RequestError(
                    f"{file}: no column {missing[0]!r}; there are: "
                    f"{', '.join(table.schema_arrow.names)}."
                )
            number = 0
            for batch in table.iter_batches(64, columns=["image", about]):
                for row in batch.to_pylist():
                    number += 1
                    image = row["image"]
                    content = image.get("bytes") if isinstance(image, dict) else image
                    if not isinstance(content, bytes) or row[about] is None:
                        raise RequestError(
                            f"{file}, row {number}: expected the bytes of a picture and {about}."
                        )
                    yield Picture(f"{file}, row {number}", content), row[about], _mark(content)
    except (OSError, pyarrow.ArrowException) as error:
        said = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise RequestError(f"data.path={file} cannot be read: {said}.") from error


def _mark(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def checked(
    items: Iterator[Item[T]] | Sequence[Item[T]], on_error: OnError, dropped: Counter[str]
) -> list[Item[T]]:
    """Those whose picture can be read; others are refused, or left out and counted."""
    found = []
    for item in items:
        try:
            item.picture.check()
        except RequestError:
            if on_error == OnError.error:
                raise
            dropped["unreadable"] += 1
        else:
            found.append(item)
    return found
