"""A checkpoint that is there: found, compared with its sums, read without executing anything."""

import functools
import hashlib
import json
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from txlab.core.errors import RequestError

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


BEST = "best"
"""RUN/best names the best checkpoint of a run, wherever one is asked for."""


@dataclass(frozen=True)
class Score:
    """A figure of a checkpoint's step, by which the best ones are found."""

    key: str
    """Column of the log, such as val/loss."""
    value: float
    highest: bool = False
    """Whether more is better."""

    @property
    def rank(self) -> float:
        """Larger is better; what is not a number is worst."""
        if math.isnan(self.value):
            return -math.inf
        return self.value if self.highest else -self.value


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint folder."""

    path: Path

    @property
    def step(self) -> int:
        match = STEP.fullmatch(self.path.name)
        return int(match.group(1)) if match else -1

    @property
    def score(self) -> Score | None:
        """Its held-out figure; None where its step was not validated."""
        try:
            found = self._notes().get("score") or {}
            return Score(str(found["key"]), float(found["value"]), bool(found["highest"]))
        except (RequestError, TypeError, KeyError, ValueError):
            return None

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
        """The mark; of a folder that was put together by hand: nothing, its contents have to do.

        RequestError where it says something else: what it says of the other files is lost.
        """
        file = self.path / MARK
        try:
            raw = file.read_bytes()
        except OSError:
            return {}
        try:
            found = json.loads(raw) if raw.strip() else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise damaged(file, "it is no list of files and their sums")
        return found


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


def best_first(found: list[Checkpoint]) -> list[Checkpoint]:
    """Those that have the newest one's kind of score, the best first; of equal ones the earlier."""
    scored = [(c, c.score) for c in sorted(found, key=lambda c: c.step)]
    kinds = [(score.key, score.highest) for _, score in scored if score is not None]
    alike = [
        (c, score)
        for c, score in scored
        if score is not None and (score.key, score.highest) == kinds[-1]
    ]
    return [c for c, _ in sorted(alike, key=lambda pair: -pair[1].rank)]


def find(path: Path) -> Checkpoint:
    """The checkpoint at `path`, or the newest complete one of the run at `path`.

    RUN/best is the one with the best score.
    """
    if path.name == BEST and not path.exists() and path.parent.is_dir():
        return _best(path.parent)
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


def _best(run: Path) -> Checkpoint:
    found = best_first(complete(run / FOLDER) or complete(run))
    if not found:
        raise RequestError(
            f"{run} holds no checkpoint of a validated step, so none is its {BEST}: train with "
            "train.keep_best=1 and train.val_every, or take the newest, without the last word."
        )
    return found[0]
