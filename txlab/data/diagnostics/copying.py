"""Copying: of everything, and of what matters."""

import random
from dataclasses import dataclass

from txlab.data.diagnostics.diagnostic import Diagnostic, Words, symbols
from txlab.data.source import data

GO, NOISE = ":", "."


@data("copy")
class Copy(Diagnostic):
    """Symbols, then the same again: `da gu be : da gu be`. Asks for one look back at a distance."""

    @dataclass
    class Config(Diagnostic.Config):
        length: int = 16
        """Symbols to copy."""
        n_symbols: int = 32
        """Different symbols."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.length > 0, "length", "a number above 0")
            self.require(self.n_symbols > 1, "n_symbols", "2 or more")

    def vocabulary(self) -> list[str]:
        assert isinstance(self.config, Copy.Config)
        return [*symbols(self.config.n_symbols), GO]

    def longest(self) -> int:
        assert isinstance(self.config, Copy.Config)
        return 2 * self.config.length + 1

    def draw(self, source: random.Random) -> Words:
        assert isinstance(self.config, Copy.Config)
        content = source.choices(symbols(self.config.n_symbols), k=self.config.length)
        return [*((w, False) for w in content), (GO, False), *((w, True) for w in content)]


@data("selective_copy")
class SelectiveCopy(Diagnostic):
    """Symbols among noise, then the symbols alone: `. da . . gu . : da gu` (Gu and Dao 2023).

    Where they stand differs from row to row, so no fixed distance finds them.
    """

    @dataclass
    class Config(Diagnostic.Config):
        length: int = 48
        """Places, with noise in all but those of the symbols."""
        n_copied: int = 8
        """Symbols to copy."""
        n_symbols: int = 16
        """Different symbols."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.n_copied > 0, "n_copied", "a number above 0")
            self.require(
                self.length >= self.n_copied, "length", f"at least n_copied={self.n_copied}"
            )
            self.require(self.n_symbols > 1, "n_symbols", "2 or more")

    def vocabulary(self) -> list[str]:
        assert isinstance(self.config, SelectiveCopy.Config)
        return [*symbols(self.config.n_symbols), GO, NOISE]

    def longest(self) -> int:
        assert isinstance(self.config, SelectiveCopy.Config)
        return self.config.length + 1 + self.config.n_copied

    def draw(self, source: random.Random) -> Words:
        assert isinstance(self.config, SelectiveCopy.Config)
        n, length = self.config.n_copied, self.config.length
        content = source.choices(symbols(self.config.n_symbols), k=n)
        text = [NOISE] * length
        for place, word in zip(sorted(source.sample(range(length), n)), content, strict=True):
            text[place] = word
        return [*((w, False) for w in text), (GO, False), *((w, True) for w in content)]
