"""What diagnostic tasks have in common: rows of words that are drawn by their number."""

import functools
import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from txlab.core.errors import RequestError
from txlab.data.batch import IGNORE, Batch
from txlab.data.cache import absolute, cache_folder, key
from txlab.data.problem import Problem
from txlab.data.rows import Rows, padded
from txlab.data.source import Data
from txlab.data.tokenizer.making import obtain
from txlab.data.tokenizer.tokenizer import Tokenizer

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
HELD_OUT = 8
"""One row in so many, told by a hash of its words, is for validation only."""
PATIENCE = 10_000
"""Draws without a usable row after which a task is taken for too small."""

Words = list[tuple[str, bool]]
"""The words of a row, and whether each is to be predicted."""


@functools.cache
def symbols(n: int) -> tuple[str, ...]:
    """`n` different words of letters: ba, be, bi ..., baba, babe ..."""
    syllables = [c + v for c in CONSONANTS for v in VOWELS]
    found, longer = list(syllables), syllables
    while len(found) < n:
        longer = [one + other for one in longer for other in syllables]
        found += longer
    return tuple(found[:n])


class Diagnostic(Data):
    """Rows `<bos> words <eos>`, drawn by number from a seed: none is stored, however many.

    Only the words that can be known are supervised, with the end. Which rows are held out is told
    by a hash of their words, so no held-out row is ever trained on. Each word is one token where
    the tokenizer is trained for the task, as it is by default. The last answer of held-out rows is
    asked for at each validation: `val/exact_match`.
    """

    reads: ClassVar[str] = "nothing"

    @dataclass
    class Config(Data.Config):
        """Fields shared by diagnostic tasks."""

        n_train: int = 20_000
        """Rows of an epoch."""
        n_val: int = 500
        """Rows held out."""
        n_asked: int = 200
        """Held-out rows whose last answer is asked for at each validation."""
        items_seed: int = 0
        """Seed of the rows; the run's own seed leaves them as they are."""
        cache_dir: str | None = None
        """Folder for tokenizers; None: $XDG_CACHE_HOME/txlab or ~/.cache/txlab."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.n_train > 0, "n_train", "a number above 0")
            self.require(self.n_val >= 0, "n_val", "0 or more")
            self.require(self.n_asked >= 0, "n_asked", "0 or more")
            self.cache_dir = absolute(self.cache_dir)

    def vocabulary(self) -> list[str]:
        """All words that rows may have."""
        raise NotImplementedError

    def draw(self, source: random.Random) -> Words:
        """The words of one row."""
        raise NotImplementedError

    def longest(self) -> int:
        """Words of the longest row."""
        raise NotImplementedError

    def texts(self, tokenizer: Tokenizer) -> Iterator[str]:
        # The rarest pair of letters must be frequent enough to be merged.
        return iter([f" {word}" for word in self.vocabulary()] * 64)

    def prepare(self) -> None:
        assert isinstance(self.config, Diagnostic.Config)
        vocabulary = self.vocabulary()
        self.tokenizer = obtain(
            self._tokenizer,
            cache=cache_folder(self.config.cache_dir),
            source=key(vocabulary=vocabulary),
            train=lambda fresh: fresh.train(self.texts(fresh)),
        )
        ids = self.tokenizer.encode_batch([f" {word}" for word in vocabulary])
        self._ids = dict(zip(vocabulary, ids, strict=True))
        self.train = Drawn(self, "train", self.config.n_train)
        self.val = Drawn(self, "val", self.config.n_val)
        most = self.longest() * max(map(len, ids)) + len(self._begin) + 1
        if most > self.context:
            raise RequestError(
                f"data={self.config.name}: a row takes up to {most} tokens, model.context="
                f"{self.context}; raise it, or make the task smaller."
            )
        for part in ("train", "val"):
            self.words(part, 0)  # refused now if the task is too small
        self.facts = {
            "source": f"task {self.config.name}",
            "words": len(vocabulary),
            "tokens_a_word": max(map(len, ids)),
            "train_rows": len(self.train),
            "val_rows": len(self.val),
            "tokenizer": self.tokenizer.fingerprint,
            "vocab_size": self.tokenizer.vocab_size,
            "context": self.context,
        }

    def words(self, part: str, number: int) -> Words:
        """Row `number` of "train" or "val"; RequestError where the task has none for that part."""
        assert isinstance(self.config, Diagnostic.Config)
        source = random.Random(f"{self.config.name}-{self.config.items_seed}-{part}-{number}")
        for _ in range(PATIENCE):
            words = self.draw(source)
            text = " ".join(word for word, _ in words)
            if (hashlib.blake2b(text.encode()).digest()[0] % HELD_OUT == 0) == (part == "val"):
                return words
        raise RequestError(
            f"data={self.config.name}: the task is so small that no row is left for its {part} "
            "part; make it larger."
        )

    def encoded(self, words: Words) -> tuple[list[int], list[bool]]:
        """Ids of a row, and whether each is predicted."""
        ids, asked = list(self._begin), [False] * len(self._begin)
        for word, known in words:
            ids += self._ids[word]
            asked += [known] * len(self._ids[word])
        return [*ids, self.tokenizer.eos_id], [*asked, True]

    def asked(self) -> list[Problem]:
        assert isinstance(self.config, Diagnostic.Config)
        return [
            self.problem(self.words("val", number))
            for number in range(min(self.config.n_asked, self.config.n_val))
        ]

    def problem(self, words: Words) -> Problem:
        """The last answer of a row: its words behind the last that is not predicted."""
        last = max(i for i, (_, known) in enumerate(words) if not known) + 1
        texts = [word for word, _ in words]
        ids, answer = self.encoded(words[:last])[0][:-1], texts[last:]
        length = sum(len(self._ids[word]) for word in answer) + 1
        question = " ".join(texts[:last])
        return Problem([{"role": "user", "content": question}], ids, " ".join(answer), length)

    @property
    def row_tokens(self) -> float:
        lengths = [
            len(self.row_of("train", number)[0]) for number in range(min(len(self.train), 64))
        ]
        return sum(lengths) / len(lengths)

    @property
    def sequence(self) -> float:
        return self.row_tokens

    @property
    def marked(self) -> bool:
        return True

    @property
    def _begin(self) -> list[int]:
        bos = self.tokenizer.bos_id
        return [] if bos is None else [bos]

    def row_of(self, part: str, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(tokens, labels) [t] of a row."""
        ids, asked = self.encoded(self.words(part, number))
        labels = [i if known else IGNORE for i, known in zip(ids, asked, strict=True)]
        return torch.tensor(ids), torch.tensor([*labels[1:], IGNORE])


class Drawn(Rows):
    """Rows of a task, made when they are asked for; a batch is as wide as its longest."""

    def __init__(self, task: Diagnostic, part: str, n: int) -> None:
        self._task, self._part, self._n = task, part, n

    def __len__(self) -> int:
        return self._n

    def batch(self, indices: Sequence[int]) -> Batch:
        rows = [self._task.row_of(self._part, int(i)) for i in indices]
        return padded(rows, self._task.tokenizer.pad_id)
