"""How a tokenizer does on texts: bytes a token, unknown ones, which tokens come how often."""

from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np

from txlab.data.tokenizer.tokenizer import Tokenizer

BATCH = 1 << 20
"""Characters encoded at once."""


class Figures:
    """Counts of tokens over texts; `add` texts, then read."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
        """How often each token came."""
        self.bytes = self.texts = 0

    def add(self, texts: Iterable[str], *, most: int | None = None) -> bool:
        """Count the texts; stops, and is true, when they have `most` bytes or more."""
        for batch in _batches(self._count(texts, most), self._tokenizer):
            for ids in self._tokenizer.encode_batch(batch):
                self.counts += np.bincount(ids, minlength=len(self.counts))
        return most is not None and self.bytes >= most

    def of(self, text: str) -> Self:
        """These figures, with one text added."""
        self.add([text])
        return self

    def _count(self, texts: Iterable[str], most: int | None) -> Iterator[str]:
        for text in texts:
            self.texts += 1
            self.bytes += len(text.encode())
            yield text
            if most is not None and self.bytes >= most:
                return

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    @property
    def bytes_a_token(self) -> float:
        return self.bytes / max(self.tokens, 1)

    @property
    def unknown(self) -> int:
        """How often the unknown token came."""
        unk = self._tokenizer.unk_id
        return 0 if unk is None else int(self.counts[unk])

    @property
    def lost(self) -> int:
        """Bytes that no token stands for: some byte-level tokenizers lack a few, and drop them."""
        if not getattr(self._tokenizer, "byte_level", False) or self._tokenizer.exact:
            return 0
        return max(self.bytes - int(self._tokenizer.token_bytes().numpy() @ self.counts), 0)

    @property
    def unused(self) -> int:
        """Tokens of the vocabulary, control tokens left out, that never came."""
        control = list(self._tokenizer.control.values())
        return int((self.counts == 0).sum() - (self.counts[control] == 0).sum())

    def lengths(self) -> dict[int, int]:
        """How often tokens of each length in bytes came; 0 for control tokens."""
        sizes = self._tokenizer.token_bytes().numpy()
        found = np.bincount(sizes, weights=self.counts).astype(np.int64)
        return {length: int(n) for length, n in enumerate(found) if n}

    def frequent(self, n: int) -> list[tuple[int, int]]:
        """(token, count) of the `n` tokens that came most often."""
        order = np.argsort(-self.counts, kind="stable")[:n]
        return [(int(i), int(self.counts[i])) for i in order if self.counts[i]]


def _batches(texts: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[str]]:
    waiting: list[str] = []
    length = 0
    for text in texts:
        for piece in tokenizer.pieces(text):
            waiting.append(piece)
            length += len(piece)
            if length >= BATCH:
                yield waiting
                waiting, length = [], 0
    yield waiting
