"""What one reading of all records found, and what becomes of each."""

import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlab.data.filter import Fate, Measure
from txlab.data.split import Split, aligned, choose, groups, marks


@dataclass(frozen=True)
class Survey:
    """One byte a record, for as long as the data is prepared."""

    fates: NDArray[np.uint8]
    """[n]: `Fate` of each record of all sources, in order."""
    cuts: dict[int, float]
    """The part that is held out of each record that is cut."""
    rule: str
    """How documents were held out, in words."""
    documents: Sequence[int]
    """Documents of each source that are used."""
    bytes: Sequence[int]
    """Their bytes."""
    dropped: Counter[str]
    """Records that are left out, by reason."""
    faults: Sequence[str]
    """What was wrong with the first unreadable records and files."""


class Census:
    """Counts records while they are read: 25 bytes each, and as much again in the end."""

    SHOWN = 3

    def __init__(self) -> None:
        self._marks, self._fates = bytearray(), bytearray()
        self._sizes = array.array("q")
        self._borders: list[int] = []
        self._dropped: Counter[str] = Counter()
        self._faults: list[str] = []

    def add(self, found: Measure) -> None:
        """A record that was read."""
        self._marks += found.mark
        self._sizes.append(found.size)
        self._fates.append(found.fate)

    def fault(self, message: str, *, whole_file: bool = False) -> None:
        """A record that could not be read, or the rest of a file."""
        if not whole_file:
            self.add(Measure(Fate.unreadable, 0, bytes(16)))
        else:
            self._dropped["unreadable_files"] += 1
        if len(self._faults) < self.SHOWN:
            self._faults.append(message)

    def end_source(self) -> None:
        """What comes next is of another source."""
        self._borders.append(len(self._fates))

    def close(self, fractions: Sequence[float], *, dedup: bool) -> Survey:
        """Decide on each record; every source holds out its own part, of these fractions."""
        fates = np.frombuffer(self._fates, np.uint8).copy()
        sizes = np.frombuffer(self._sizes, np.int64)
        found = marks(self._marks)
        used = np.flatnonzero(fates == Fate.train)
        if dedup and len(used):
            first = used[groups(found[used])[1]]
            fates[used] = Fate.duplicate
            fates[first] = Fate.train
            used = np.flatnonzero(fates == Fate.train)
        parts = [used[(used >= begin) & (used < end)] for begin, end in self._spans()]
        splits = [
            choose(found[part], sizes[part], fraction)
            for part, fraction in zip(parts, fractions, strict=True)
        ]
        split = _joined(splits)
        if len(parts) > 1:
            split = aligned(found[used], split)
        fates[used[split.held_out]] = Fate.val
        cut = np.flatnonzero(split.cut)
        fates[used[cut]] = Fate.cut
        self._dropped.update(
            {fate.name: n for fate in list(Fate)[3:] if (n := int((fates == fate).sum()))}
        )
        return Survey(
            fates=fates,
            cuts=dict(zip(used[cut].tolist(), split.cut[cut].tolist(), strict=True)),
            rule=", ".join(dict.fromkeys(s.rule for s in splits)) or "nothing is held out",
            documents=[len(part) for part in parts],
            bytes=[int(sizes[part].sum()) for part in parts],
            dropped=self._dropped,
            faults=self._faults,
        )

    def _spans(self) -> Iterable[tuple[int, int]]:
        return zip([0, *self._borders], self._borders, strict=False)


def _joined(splits: Sequence[Split]) -> Split:
    return Split(
        np.concatenate([split.held_out for split in splits]),
        np.concatenate([split.cut for split in splits]),
    )
