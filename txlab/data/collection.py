"""The documents of some sources: counted, split, tokenised, written."""

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError, RunError
from txlab.data import files
from txlab.data.cache import whole
from txlab.data.encoding import Document, encoded, pieces
from txlab.data.filter import Fate, Filter
from txlab.data.formats import Record, kind, records
from txlab.data.shards import Shards, ShardWriter, entropy, open_shards
from txlab.data.split import cut_parts, slices
from txlab.data.survey import Census, Survey
from txlab.data.tokenizer.tokenizer import Tokenizer

PARTS = ("train", "val")


class OnError(StrEnum):
    """What becomes of input that cannot be read."""

    error = "error"
    """The run is refused."""
    skip = "skip"
    """It is left out and counted."""


@dataclass(frozen=True)
class Source:
    """Files that belong together."""

    name: str
    path: str
    """As it was asked for."""
    files: Sequence[Path]
    field: str
    """Field of the text in records that have fields."""


class Collection:
    """Documents of files, read anew (never all in memory) each time they are gone through.

    Of each source `val_fraction` is held out, of those numbered in `held_out` all there is.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        val_fraction: float = 0.0,
        held_out: Sequence[int] = (),
        wanted: Filter | None = None,
        dedup: bool = False,
        on_error: OnError = OnError.error,
    ) -> None:
        self.sources = sources
        self.path = ", ".join(source.path for source in sources)
        self.sha256 = self._digest()
        self._val_fraction = val_fraction
        self._held_out = list(held_out)
        self._wanted = wanted or Filter()
        self._dedup, self._on_error = dedup, OnError(on_error)

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the documents and their split."""
        return {
            "text": self.sha256,
            "kinds": [[(kind(f), f.suffix.lower()) for f in s.files] for s in self.sources],
            "fields": [source.field for source in self.sources],
            "val_fraction": self._val_fraction,
            **({"held_out": self._held_out} if self._held_out else {}),
            "wanted": asdict(self._wanted),
            "dedup": self._dedup,
            "on_error": self._on_error,
        }

    @functools.cached_property
    def survey(self) -> Survey:
        """Counts and fates; RequestError where a file is bad or there is no text at all."""
        census = Census()
        for source in self.sources:
            for record in self._records(source, census):
                try:
                    census.add(self._wanted.measure(record.text(source.field)))
                except RequestError as error:
                    if self._on_error is OnError.error:
                        raise
                    census.fault(str(error))
            census.end_source()
        fractions = [
            1.0 if place in self._held_out else self._val_fraction
            for place in range(len(self.sources))
        ]
        survey = census.close(fractions, dedup=self._dedup)
        for source, documents in zip(self.sources, survey.documents, strict=True):
            if documents == 0:
                said = [f"{n} {name.replace('_', ' ')}" for name, n in survey.dropped.items()]
                faults = f" ({survey.faults[0]})" if survey.faults else ""
                raise RequestError(
                    f"data.path={source.path}: no text, {len(source.files)} file(s) hold "
                    f"{', '.join(said) or 'nothing'}{faults}."
                )
        return survey

    def documents(self) -> Iterator[Document]:
        """Every document that is used, or either half of one that is cut, in order."""
        survey, number = self.survey, -1
        for place, source in enumerate(self.sources):
            for record in self._records(source):
                number += 1
                fate = int(survey.fates[number])
                if fate == Fate.cut:
                    yield from self._halves(place, source, record, survey.cuts[number])
                elif fate <= Fate.val:
                    yield Document(place, fate == Fate.val, record.text(source.field))

    def texts(self) -> Iterator[str]:
        """Every document that is used, as a whole text."""
        return ("".join(document.parts) for document in self.documents())

    def training_texts(self, tokenizer: Tokenizer) -> Iterator[str]:
        """What is not held out, in the pieces of this tokenizer."""
        for document in self.documents():
            if not document.held_out:
                yield from pieces(tokenizer, document.parts)

    def train(self, tokenizer: Tokenizer) -> None:
        """Train a tokenizer on what is not held out."""
        tokenizer.train(self.training_texts(tokenizer))
        self._unchanged()

    def write(self, folder: Path, tokenizer: Tokenizer, source: str) -> None:
        """Write the shards of each source and part and, when all are whole, facts.json."""
        sizes = [[0, 0] for _ in self.sources]
        with contextlib.ExitStack() as stack:
            writers = [
                [
                    stack.enter_context(
                        ShardWriter(
                            self.folder(folder, place), part,
                            vocab_size=tokenizer.vocab_size, tokenizer=tokenizer.fingerprint,
                            source=source,
                        )
                    )
                    for part in PARTS
                ]
                for place in range(len(self.sources))
            ]  # fmt: skip
            for batch in encoded(tokenizer, self.documents()):
                for found in batch:
                    writers[found.source][found.held_out].extend(found.ids, found.ends)
                    sizes[found.source][found.held_out] += found.bytes
        self._unchanged()
        shards = [[writer.n for writer in of_source] for of_source in writers]
        facts = self._facts(folder, tokenizer, sizes, shards)
        with whole(folder / "facts.json") as stream:
            stream.write(json.dumps(facts, indent=1).encode())

    def folder(self, folder: Path, place: int) -> Path:
        """Where the shards of source number `place` lie."""
        return folder if len(self.sources) == 1 else folder / f"{place:03d}"

    def _facts(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        sizes: list[list[int]],
        shards: list[list[int]],
    ) -> dict[str, Any]:
        survey = self.survey
        facts: dict[str, Any] = {
            "documents": sum(survey.documents),
            **{f"dropped_{name}": n for name, n in sorted(survey.dropped.items())},
            **({"faults": list(survey.faults)} if survey.faults else {}),
            "bytes": sum(survey.bytes),
            "split": survey.rule,
        }
        each: list[dict[str, Any]] = []
        held_out: list[Shards] = []
        for place, of_source in enumerate(sizes):
            mine: dict[str, Any] = {}
            for part, size, n in zip(PARTS, of_source, shards[place], strict=True):
                store = open_shards(
                    self.folder(folder, place), part, n=n, vocab_size=tokenizer.vocab_size
                )
                if part == "val":
                    held_out.append(store)
                mine |= {
                    f"{part}_documents": store.documents,
                    f"{part}_tokens": store.count,
                    f"{part}_supervised": store.count - store.documents,
                    f"{part}_bytes": size,
                }
                if tokenizer.unk_id is not None:
                    mine[f"{part}_unknown"] = store.count_of(tokenizer.unk_id)
            each.append(mine)
        facts |= {key: sum(mine[key] for mine in each) for key in each[0]}
        facts["shards"] = shards
        if tokenizer.sampled > 1:
            facts["tokenizer_sampled"] = tokenizer.sampled
        facts["unigram_entropy"] = entropy(held_out)
        if len(each) > 1:
            facts["sources"] = {
                source.name: {"path": source.path, **mine}
                for source, mine in zip(self.sources, each, strict=True)
            }
        return facts

    def _records(self, source: Source, census: Census | None = None) -> Iterator[Record]:
        """The records of a source; where `skip` allows it, files end where they are damaged."""
        for file in source.files:
            try:
                yield from records(file, source.field)
            except RequestError as error:
                if self._on_error is OnError.error:
                    raise
                if census is not None:
                    census.fault(str(error), whole_file=True)

    def _halves(
        self, place: int, source: Source, record: Record, fraction: float
    ) -> Iterator[Document]:
        """Both parts of a document; one that is large and may be read again is not held."""
        kept = None if record.again else list(record.text(source.field))

        def read() -> Iterable[str]:
            return record.text(source.field) if kept is None else kept

        at, before, after = cut_parts(read, fraction)
        if before:
            yield Document(place, False, slices(read(), 0, at))
        if after:
            yield Document(place, True, slices(read(), at, None))

    def _digest(self) -> str:
        found = [files.digest(source.files) for source in self.sources]
        return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()

    def _unchanged(self) -> None:
        if self._digest() != self.sha256:
            raise RunError(f"{self.path} was changed while it was read; run again.")
