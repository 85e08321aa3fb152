"""A checkpoint that is being written: whole or not at all."""

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from txlab.core.errors import RunError
from txlab.train.checkpoint.keeping import NEWEST, Keep, thin_out
from txlab.train.checkpoint.reading import (
    ADAPTER,
    CONFIG,
    MARK,
    ORIGIN,
    STATE,
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    Score,
    complete,
    digest,
)


def save(
    folder: Path,
    step: int,
    *,
    tensors: dict[str, Tensor] | None,
    state: dict[str, Any],
    config: str,
    save_tokenizer: Callable[[Path], Any] | None,
    keep: Keep = NEWEST,
    score: Score | None = None,
    adapter: dict[str, Tensor] | None = None,
    origin: str | None = None,
) -> Checkpoint:
    """Write `folder/step-NNNNNN` under a temporary name, sync it to disk, then rename it.

    Then those that `keep` does not name are removed. Without `tensors` the weights are those at
    `origin`, the text of origin.json. RunError when the disk refuses: the temporary files are gone
    then, older checkpoints are intact.
    """
    writers: dict[str, Callable[[Path], Any]] = {
        STATE: partial(_save_state, state),
        CONFIG: lambda file: file.write_text(config, encoding="utf-8"),
    }
    for name, named in ((WEIGHTS, tensors), (ADAPTER, adapter)):
        if named is not None:
            writers[name] = partial(save_tensors, named)
    if origin is not None:
        writers[ORIGIN] = lambda file: file.write_text(origin, encoding="utf-8")
    if save_tokenizer is not None:
        writers[TOKENIZER] = save_tokenizer
    target = folder / f"step-{step:06d}"
    facts = {"step": step} | ({} if score is None else {"score": asdict(score)})
    try:
        write(target, writers, facts)
    except RunError as error:
        older = complete(folder)
        rest = f"the last good one is {older[-1].path}" if older else "there is no earlier one"
        raise RunError(f"{error}; {rest}. Make room, then go on with resume=auto.") from error
    thin_out(folder, keep)
    return Checkpoint(target)


def write(
    target: Path, writers: dict[str, Callable[[Path], Any]], facts: dict[str, Any]
) -> Checkpoint:
    """Let each writer make its file of a new checkpoint at `target`, and mark it as complete.

    It appears whole or not at all: RunError when the disk refuses.
    """
    folder = target.parent
    temporary = folder / f".tmp-{target.name}-{os.getpid()}"
    try:
        temporary.mkdir(parents=True)
        for name, writer in writers.items():
            writer(temporary / name)
        files = sorted(temporary.iterdir())
        with ThreadPoolExecutor(2) as pool:  # while the disk is waited for
            digests = pool.map(digest, files)
            for file in files:
                _sync(file)
            sums = {f.name: d for f, d in zip(files, digests, strict=True) if f.name != ORIGIN}
        sizes = {file.name: file.stat().st_size for file in files if file.name != ORIGIN}
        notes = {**facts, "bytes": sizes, "sha256": sums}
        (temporary / MARK).write_text(json.dumps(notes) + "\n")
        _sync(temporary / MARK)
        _sync(temporary)
        replaced = folder / f"{temporary.name}-replaced"
        if target.exists():  # aside first: two renames apart, nothing is missing for long
            target.rename(replaced)
        temporary.rename(target)
        _sync(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        why = " ".join(str(_first_of(error)).split())[:160]
        raise RunError(f"saving {target} failed ({why})") from error
    return Checkpoint(target)


def plain_files(
    tensors: dict[str, Tensor], config: str, tokenizer: Any = None
) -> dict[str, Callable[[Path], Any]]:
    """Writers of a checkpoint that is loaded but not resumed: weights, config, tokenizer."""
    writers: dict[str, Callable[[Path], Any]] = {
        WEIGHTS: partial(save_tensors, tensors),
        CONFIG: lambda file: file.write_text(config, encoding="utf-8"),
    }
    return writers if tokenizer is None else {**writers, TOKENIZER: tokenizer.save}


def _save_state(state: dict[str, Any], file: Path) -> None:
    with file.open("wb") as stream:  # so that the system's own error is at hand
        torch.save(state, stream)


def _first_of(error: BaseException) -> BaseException:
    """The system's refusal where there is one behind `error`."""
    while not isinstance(error, OSError):
        before = error.__cause__ or error.__context__
        if before is None:
            return error
        error = before
    return error


def save_tensors(tensors: dict[str, Tensor], file: Path) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, file, metadata={"format": "pt"})


def _sync(path: Path) -> None:
    """Make the system write `path` (file or folder) to the disk now."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
