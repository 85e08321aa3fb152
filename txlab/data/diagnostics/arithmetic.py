"""Arithmetic: the parity of bits, and sums modulo a number."""

import random
from dataclasses import dataclass

from txlab.data.diagnostics.diagnostic import Diagnostic, Words
from txlab.data.source import data

EQUALS, PLUS = "=", "+"


@data("parity")
class Parity(Diagnostic):
    """Whether a row of bits has an odd number of ones: `1 0 1 1 = 1`. Every bit decides."""

    @dataclass
    class Config(Diagnostic.Config):
        length: int = 16
        """Bits at most."""
        shortest: int = 1
        """Bits at least; each number between is equally likely."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.length >= 4, "length", "4 or more: fewer have too few rows")
            self.require(
                1 <= self.shortest <= self.length, "shortest", f"1 to length={self.length}"
            )

    def vocabulary(self) -> list[str]:
        return ["0", "1", EQUALS]

    def longest(self) -> int:
        assert isinstance(self.config, Parity.Config)
        return self.config.length + 2

    def draw(self, source: random.Random) -> Words:
        assert isinstance(self.config, Parity.Config)
        n = source.randint(self.config.shortest, self.config.length)
        bits = source.choices((0, 1), k=n)
        asked = [*map(str, bits), EQUALS]
        return [*((w, False) for w in asked), (str(sum(bits) % 2), True)]


@data("modular_addition")
class ModularAddition(Diagnostic):
    """Sums modulo p: `17 + 90 = 10` for p = 97 (Power et al. 2022, where it is grokked).

    An eighth of all p^2 sums is held out; of the others the first `n_train` draws are trained on,
    so a small `n_train` leaves most of them unseen.
    """

    @dataclass
    class Config(Diagnostic.Config):
        p: int = 97
        """What sums are taken modulo of."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(4 <= self.p <= 999, "p", "a number from 4 to 999")

    def vocabulary(self) -> list[str]:
        assert isinstance(self.config, ModularAddition.Config)
        return [*map(str, range(self.config.p)), PLUS, EQUALS]

    def longest(self) -> int:
        return 5

    def draw(self, source: random.Random) -> Words:
        assert isinstance(self.config, ModularAddition.Config)
        p = self.config.p
        one, other = source.randrange(p), source.randrange(p)
        asked = [str(one), PLUS, str(other), EQUALS]
        return [*((w, False) for w in asked), (str((one + other) % p), True)]
