"""Data sets of the Hugging Face hub, or folders laid out like one: streamed into a file once."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError, RunError
from txlab.data.cache import key, whole

PREFIX = "hf://"


def is_hub(path: str) -> bool:
    """Whether a path is `hf://NAME[@REVISION]` or `hf://FOLDER`."""
    return path.startswith(PREFIX)


def located(path: str) -> str:
    """The same, a folder seen from the launch folder."""
    name = os.path.expanduser(path.removeprefix(PREFIX))
    return PREFIX + os.path.abspath(name) if os.path.isdir(name) else PREFIX + name


def fetch(path: str, field: str, subset: str | None, split: str, cache: Path) -> Path:
    """The file, in the cache, of one field of a split: a JSON object a line.

    Only this field is kept, row by row, so memory and disk hold no more than its text. It is made
    once for a revision of the data. RequestError says what the hub or its library found wrong.
    """
    from datasets import load_dataset_builder

    name, _, revision = path.removeprefix(PREFIX).partition("@")
    if os.path.isdir(path.removeprefix(PREFIX)):
        name, revision = path.removeprefix(PREFIX), ""
    with _translated(path, subset, split):
        builder = load_dataset_builder(name, subset, revision=revision or None)
        made_of = key(
            name=name, config=builder.config_id, hash=builder.hash, split=split, field=field
        )
        file = cache / "hub" / f"{made_of}.jsonl"
        if file.exists():
            return file
        rows: Any = builder.as_streaming_dataset(split=split)
        known = list(rows.features or next(iter(rows), {}))
        if field not in known:
            raise RequestError(
                f"{path}: no field {field!r} (data.field=NAME chooses); there are: "
                f"{', '.join(known) or 'none'}."
            )
        with whole(file) as stream:
            for row in rows.select_columns([field]):
                stream.write(json.dumps({field: row[field]}, default=lambda _: None).encode())
                stream.write(b"\n")
    return file


@contextmanager
def _translated(path: str, subset: str | None, split: str) -> Iterator[None]:
    """The library's errors, of many kinds, as one line."""
    from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    logger = logging.getLogger("huggingface_hub")
    level, bars = logger.level, not are_progress_bars_disabled()
    disable_progress_bars()
    logger.setLevel(logging.CRITICAL)  # what it warns of is in the error as well
    try:
        yield
    except (RequestError, RunError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        chosen = f" subset={subset}" if subset else ""
        raise RequestError(
            f"data.path={path}{chosen} split={split}: {lines[0]}; check the name, the network and "
            "your rights, or give files."
        ) from error
    finally:
        logger.setLevel(level)
        if bars:
            enable_progress_bars()
