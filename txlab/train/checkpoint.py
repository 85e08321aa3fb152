"""Checkpoint folders: written whole or not at all, read without executing anything.

RUN/checkpoints/step-000100/  weights.safetensors  state.pt  config.yaml  tokenizer.json  COMPLETE

COMPLETE is written last and has size and SHA-256 of the others, which are compared when these are
read (checkpoints from before there were sums are read as they are).
A run with an adapter writes adapter.safetensors; where its base came from other weights, these are
named in origin.json instead of being written again; its place may be edited, so it has no sum.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from txlab.core.errors import RequestError, RunError

FOLDER = "checkpoints"
MARK = "COMPLETE"
WEIGHTS, STATE, CONFIG, TOKENIZER = (
    "weights.safetensors",
    "state.pt",
    "config.yaml",
    "tokenizer.json",
)
ADAPTER, ORIGIN = "adapter.safetensors", "origin.json"
STEP = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint folder."""

    path: Path

    @property
    def step(self) -> int:
        match = STEP.fullmatch(self.path.name)
        return int(match.group(1)) if match else -1

    def weights(self) -> dict[str, Tensor]:
        """Tensors by name, on the CPU."""
        return self._read(WEIGHTS, lambda file: load_file(file))

    def has(self, name: str) -> bool:
        """Whether it holds the file `name`."""
        return (self.path / name).is_file()

    def adapter(self) -> dict[str, Tensor]:
        """The adapter's tensors by name, on the CPU."""
        return self._read(ADAPTER, lambda file: load_file(file))

    def state(self) -> dict[str, Any]:
        """Optimizer, counters and generators; containers and tensors only, nothing is unpickled."""

        def read(file: Path) -> Any:
            with warnings.catch_warnings():  # about other people's formats: refused below anyway
                warnings.simplefilter("ignore", UserWarning)
                return torch.load(file, map_location="cpu", weights_only=True)

        return self._read(STATE, read)

    def config(self) -> str:
        """The run's config as YAML text."""
        return self._read(CONFIG, lambda file: file.read_text(encoding="utf-8"))

    def _read(self, name: str, reader: Callable[[Path], Any]) -> Any:
        file = self.path / name
        try:
            self.verify(name)
            return reader(file)
        except FileNotFoundError:
            raise RequestError(
                f"{self.path} has no {name}: it is no whole txlab checkpoint."
            ) from None
        except RequestError:
            raise
        except Exception as error:  # a damaged pickle raises anything
            why = " ".join(str(error).split()).split(". ")[0][:120]
            raise damaged(file, why) from error

    def verify(self, name: str) -> None:
        """RequestError where the file is not, bit for bit, what was written."""
        file = self.path / name
        size = file.stat().st_size
        wanted = self._noted("bytes", name)
        if size != (wanted or size):
            raise damaged(file, f"it has {size} bytes, {MARK} says {wanted}")
        wanted = self._noted("sha256", name)
        if wanted is not None and digest(file) != wanted:
            raise damaged(file, f"its bits are not those that were written, says {MARK}")

    def verify_all(self) -> None:
        """RequestError for the first file that is gone or not what was written."""
        for name in self._notes().get("sha256", {}):
            self._read(name, lambda file: None)

    def _noted(self, kind: str, name: str) -> Any:
        """What the mark says about a file; None where it says nothing."""
        found = self._notes().get(kind)
        return found.get(name) if isinstance(found, dict) else None

    def _notes(self) -> dict[str, Any]:
        """The mark; of a folder that was put together by hand: nothing, its contents have to do."""
        try:
            found = json.loads((self.path / MARK).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def digest(file: Path) -> str:
    """SHA-256 of a file's bytes; one that has not changed is read once a process."""
    found = file.stat()
    return _digest(file, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _digest(file: Path, *identity: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def damaged(file: Path, why: str) -> RequestError:
    """The one line that says why a file of a checkpoint is not used."""
    return RequestError(
        f"{file} cannot be read ({why}): it is damaged or not ours; nothing was used; "
        "take another checkpoint."
    )


def complete(folder: Path) -> list[Checkpoint]:
    """Complete checkpoints in the folder `checkpoints` of a run, oldest first."""
    if not folder.is_dir():
        return []
    found = [Checkpoint(path) for path in folder.iterdir() if STEP.fullmatch(path.name)]
    return sorted((c for c in found if (c.path / MARK).is_file()), key=lambda c: c.step)


def find(path: Path) -> Checkpoint:
    """The checkpoint at `path`, or the newest complete one of the run at `path`."""
    if not path.is_dir():
        raise RequestError(
            f"{path}: there is no such folder; give a run folder or a checkpoint in it."
        )
    if (path / MARK).is_file():
        return Checkpoint(path)
    for folder in (path / FOLDER, path):
        if there := complete(folder):
            return there[-1]
    if any((path / name).exists() for name in (WEIGHTS, STATE)):
        raise RequestError(f"{path} is an unfinished or foreign checkpoint: it has no file {MARK}.")
    raise RequestError(f"{path} holds no complete checkpoint (looked in {FOLDER}/ as well).")


def save(
    folder: Path,
    step: int,
    *,
    tensors: dict[str, Tensor] | None,
    state: dict[str, Any],
    config: str,
    save_tokenizer: Callable[[Path], Any] | None,
    keep_last: int,
    adapter: dict[str, Tensor] | None = None,
    origin: str | None = None,
) -> Checkpoint:
    """Write `folder/step-NNNNNN` under a temporary name, sync it to disk, then rename it.

    Without `tensors` the weights are those at `origin`, the text of origin.json. RunError when the
    disk refuses: the temporary files are gone then, older checkpoints are intact.
    """
    writers: dict[str, Callable[[Path], Any]] = {
        STATE: lambda file: torch.save(state, file),
        CONFIG: lambda file: file.write_text(config, encoding="utf-8"),
    }
    for name, named in ((WEIGHTS, tensors), (ADAPTER, adapter)):
        if named is not None:
            writers[name] = partial(_save_tensors, named)
    if origin is not None:
        writers[ORIGIN] = lambda file: file.write_text(origin, encoding="utf-8")
    if save_tokenizer is not None:
        writers[TOKENIZER] = save_tokenizer
    target = folder / f"step-{step:06d}"
    try:
        write(target, writers, {"step": step})
    except RunError as error:
        older = complete(folder)
        rest = f"the last good one is {older[-1].path}" if older else "there is no earlier one"
        raise RunError(f"{error}; {rest}. Make room, then go on with resume=auto.") from error
    for old in complete(folder)[:-keep_last]:
        _remove(old.path)
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
        why = " ".join(str(error).split())[:160]
        raise RunError(f"saving {target} failed ({why})") from error
    return Checkpoint(target)


def plain_files(
    tensors: dict[str, Tensor], config: str, tokenizer: Any = None
) -> dict[str, Callable[[Path], Any]]:
    """Writers of a checkpoint that is loaded but not resumed: weights, config, tokenizer."""
    writers: dict[str, Callable[[Path], Any]] = {
        WEIGHTS: partial(_save_tensors, tensors),
        CONFIG: lambda file: file.write_text(config, encoding="utf-8"),
    }
    return writers if tokenizer is None else {**writers, TOKENIZER: tokenizer.save}


def _save_tensors(tensors: dict[str, Tensor], file: Path) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, file, metadata={"format": "pt"})


def clear_leftovers(folder: Path, step: int | None = None) -> None:
    """Remove what a killed process left half-written or half-removed.

    Checkpoints beyond `step`, where the run goes on, are damaged: they are moved out of the way, to
    `step-NNNNNN-damaged`, so that none is ever taken for the newest.
    """
    if not folder.is_dir():
        return
    for found in complete(folder) if step is not None else ():
        if found.step > (step or 0):
            aside = found.path.with_name(f"{found.path.name}-damaged")
            shutil.rmtree(aside, ignore_errors=True)
            found.path.rename(aside)
    for path in folder.iterdir():
        unfinished = STEP.fullmatch(path.name) and not (path / MARK).exists()
        if path.name.startswith(".tmp-") or unfinished:
            shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    """Remove a checkpoint, its mark first, so that half of one is never taken for a whole."""
    (path / MARK).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _sync(path: Path) -> None:
    """Make the system write `path` (file or folder) to the disk now."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
