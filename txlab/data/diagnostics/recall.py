"""Recall: what came after something the last time, once, of many pairs, and far back."""

import random
from dataclasses import dataclass

from txlab.data.diagnostics.diagnostic import Diagnostic, Words, symbols
from txlab.data.source import data

MARK, ASK, KEY = "?", ":", "key"


@data("induction")
class Induction(Diagnostic):
    """A mark among symbols, and at the end again: `be ? gu da bi ? gu` (Olsson et al. 2022).

    What followed the mark the first time follows it the second. Two layers of attention do it.
    """

    @dataclass
    class Config(Diagnostic.Config):
        length: int = 48
        """Symbols before the question."""
        n_symbols: int = 32
        """Different symbols."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.length > 0, "length", "a number above 0")
            self.require(self.n_symbols > 1, "n_symbols", "2 or more")

    def vocabulary(self) -> list[str]:
        assert isinstance(self.config, Induction.Config)
        return [*symbols(self.config.n_symbols), MARK]

    def longest(self) -> int:
        assert isinstance(self.config, Induction.Config)
        return self.config.length + 3

    def draw(self, source: random.Random) -> Words:
        assert isinstance(self.config, Induction.Config)
        text = source.choices(symbols(self.config.n_symbols), k=self.config.length)
        place = source.randrange(self.config.length)
        asked = [*text[:place], MARK, *text[place:], MARK]
        return [*((w, False) for w in asked), (text[place], True)]


@data("mqar")
class MQAR(Diagnostic):
    """Multi-query associative recall: `ba gu be da : be da ba gu` (Arora et al. 2023).

    Keys with their values, then each key again in another order: its value is to be predicted.
    What holds the pairs must hold all of them, which a small recurrent state can not.
    """

    @dataclass
    class Config(Diagnostic.Config):
        n_pairs: int = 8
        """Keys with a value."""
        n_symbols: int = 64
        """Different symbols: the first half are keys, the others values."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.n_pairs > 0, "n_pairs", "a number above 0")
            self.require(
                self.n_symbols // 2 >= max(self.n_pairs, 2),
                "n_symbols",
                f"at least {2 * max(self.n_pairs, 2)}: each of n_pairs={self.n_pairs} its own key",
            )

    def vocabulary(self) -> list[str]:
        assert isinstance(self.config, MQAR.Config)
        return [*symbols(self.config.n_symbols), ASK]

    def longest(self) -> int:
        assert isinstance(self.config, MQAR.Config)
        return 4 * self.config.n_pairs + 1

    def draw(self, source: random.Random) -> Words:
        assert isinstance(self.config, MQAR.Config)
        n, half = self.config.n_pairs, self.config.n_symbols // 2
        words = symbols(self.config.n_symbols)
        keys, values = source.sample(words[:half], n), source.choices(words[half:], k=n)
        found: Words = []
        for key, value in zip(keys, values, strict=True):
            found += [(key, False), (value, False)]
        found.append((ASK, False))
        for i in source.sample(range(n), n):
            found += [(keys[i], False), (values[i], True)]
        return found


@data("needle")
class Needle(Diagnostic):
    """Keys with values far apart in filler, one of which is asked for: `.. key ba gu .. : ba gu`.

    The needle in a haystack: `n_needles` of them, at any depth.
    """

    @dataclass
    class Config(Diagnostic.Config):
        length: int = 64
        """Words of filler."""
        n_needles: int = 1
        """Keys with a value in it; one is asked for."""
        n_symbols: int = 32
        """Different symbols: the first half are keys, the others values."""
        n_filler: int = 8
        """Different words of filler."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.length >= 0, "length", "0 or more")
            self.require(self.n_needles > 0, "n_needles", "a number above 0")
            self.require(self.n_filler > 0, "n_filler", "a number above 0")
            self.require(
                self.n_symbols // 2 >= max(self.n_needles, 2),
                "n_symbols",
                f"at least {2 * max(self.n_needles, 2)}: each of n_needles={self.n_needles} its "
                "own key",
            )

    def vocabulary(self) -> list[str]:
        assert isinstance(self.config, Needle.Config)
        return [*symbols(self.config.n_symbols + self.config.n_filler), ASK, KEY]

    def longest(self) -> int:
        assert isinstance(self.config, Needle.Config)
        return self.config.length + 3 * self.config.n_needles + 3

    def draw(self, source: random.Random) -> Words:
        assert isinstance(self.config, Needle.Config)
        n, half = self.config.n_needles, self.config.n_symbols // 2
        words = symbols(self.config.n_symbols + self.config.n_filler)
        keys = source.sample(words[:half], n)
        values = source.choices(words[half : self.config.n_symbols], k=n)
        filler = source.choices(words[self.config.n_symbols :], k=self.config.length)
        depths = sorted(source.randint(0, self.config.length) for _ in range(n))
        text, begin = [], 0
        for depth, key, value in zip(depths, keys, values, strict=True):
            text += [*filler[begin:depth], KEY, key, value]
            begin = depth
        asked = source.randrange(n)
        text += [*filler[begin:], ASK, keys[asked]]
        return [*((w, False) for w in text), (values[asked], True)]
