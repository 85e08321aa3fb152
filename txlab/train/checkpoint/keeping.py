"""Which checkpoints of a run stay, and what a killed process left."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from txlab.train.checkpoint.reading import MARK, STEP, Checkpoint, Score, best_first, complete


@dataclass(frozen=True)
class Keep:
    """Which checkpoints of a run stay: each that one of these names."""

    last: int = 2
    """The newest ones."""
    best: int = 0
    """Those with the best score."""
    every: int | None = None
    """Those whose step is a multiple of it."""

    def of(self, found: list[Checkpoint]) -> list[Checkpoint]:
        """Those of `found`, oldest first, that stay."""
        named = {*found[-self.last :], *best_first(found)[: self.best]}
        return [c for c in found if c in named or (self.every and c.step % self.every == 0)]

    def wants(self, folder: Path, score: Score) -> bool:
        """Whether a checkpoint of `score` would be among the best ones in `folder`."""
        if self.best == 0:
            return False
        best = [c.score for c in best_first(complete(folder))[: self.best]]
        alike = [s for s in best if s is not None and s.key == score.key]
        return len(alike) < self.best or score.rank > min(s.rank for s in alike)


NEWEST = Keep()
"""Only the newest two."""


def thin_out(folder: Path, keep: Keep) -> None:
    """Remove the complete checkpoints that `keep` does not name."""
    found = complete(folder)
    stay = keep.of(found)
    for old in found:
        if old not in stay:
            _remove(old.path)


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
