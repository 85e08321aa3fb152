"""Varied texts: the world's scripts, emoji, control characters, white space, code; by a seed."""

import argparse
import functools
import http.client
import inspect
import random
import sys
import textwrap
import unicodedata
import unittest.case
from collections import defaultdict
from collections.abc import Callable

SPACES = [chr(c) for c in range(0x3001) if chr(c).isspace()]
CONTROLS = [
    chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Cc", "Cf", "Co", "Cn")
][::37] + [chr(c) for c in range(32)]


@functools.cache
def scripts() -> dict[str, list[str]]:
    """Letters, marks and digits by the first word of their names: LATIN, ARABIC, TAMIL ..."""
    found: dict[str, list[str]] = defaultdict(list)
    for code in range(0x110000):
        letter = chr(code)
        if unicodedata.category(letter)[0] in "LMN":
            name = unicodedata.name(letter, "")
            found[name.partition(" ")[0]].append(letter)
    return {name: letters for name, letters in found.items() if len(letters) >= 20}


@functools.cache
def symbols() -> list[str]:
    """Punctuation and symbols, emoji among them."""
    return [chr(c) for c in range(0x110000) if unicodedata.category(chr(c))[0] in "PS"]


@functools.cache
def code() -> list[str]:
    """Lines of Python source, docstrings and comments among them."""
    modules = (argparse, functools, inspect, random, textwrap, unittest.case, http.client)
    return [line for module in modules for line in inspect.getsource(module).splitlines(True)]


def _words(source: random.Random) -> str:
    letters = scripts()[source.choice(sorted(scripts()))]
    words = ["".join(source.choices(letters, k=source.randint(1, 9))) for _ in range(8)]
    return source.choice([" ", " ", "  ", "", ", "]).join(words[: source.randint(1, 8)])


def _emoji(source: random.Random) -> str:
    people, skin = "👨👩🧑👧👦🧔", ["", *"🏻🏼🏽🏾🏿"]
    family = "\u200d".join(
        source.choice(people) + source.choice(skin) for _ in range(source.randint(1, 4))
    )
    flags = "".join(chr(0x1F1E6 + source.randrange(26)) for _ in range(2 * source.randint(0, 3)))
    key = f"{source.randrange(10)}\ufe0f\u20e3"
    return source.choice([" ", "", "x"]).join(
        [family, flags, key, *source.choices(symbols(), k=source.randint(0, 8))]
    )


def _controls(source: random.Random) -> str:
    parts = [*source.choices(CONTROLS, k=4), *source.choices(SPACES, k=3), _words(source)]
    source.shuffle(parts)
    return "".join(parts)


def _code(source: random.Random) -> str:
    begin = source.randrange(len(code()) - 12)
    return "".join(code()[begin : begin + source.randint(1, 12)])


def _anything(source: random.Random) -> str:
    codes = [source.randrange(sys.maxunicode + 1) for _ in range(source.randint(0, 30))]
    return "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000)


def _marks(source: random.Random) -> str:
    text = "".join(c + "\u0301\u0308\u20d2"[: source.randrange(4)] for c in _words(source))
    return unicodedata.normalize(source.choice(["NFC", "NFD", "NFKC", "NFKD"]), text)


def _numbers(source: random.Random) -> str:
    return source.choice(["-", ".", ",", " ", ""]).join(
        str(source.randrange(10 ** source.randint(1, 12))) for _ in range(4)
    )


KINDS: tuple[Callable[[random.Random], str], ...] = (
    *(_words, _words, _words, _emoji, _controls, _code, _code, _anything, _marks, _numbers),
)


def strings(n: int, seed: int = 0) -> list[str]:
    """`n` texts, of each kind equally many, some of several kinds."""
    source = random.Random(seed)
    found = []
    for number in range(n):
        text = KINDS[number % len(KINDS)](source)
        if source.random() < 0.2:
            text += source.choice(["", " ", "\n"]) + source.choice(KINDS)(source)
        found.append(text)
    return found
