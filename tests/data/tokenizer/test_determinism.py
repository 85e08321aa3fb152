"""The same texts give the same tokenizer: in another process, with other threads and hashes."""

import os
import subprocess
import sys

import pytest

from txlab.data.tokenizer import tokenizer
from txlab.testing import tiny

CODE = """
import sys
from txlab.data.tokenizer import tokenizer
from txlab.testing import tiny
for name, fields in {choices!r}:
    made = tokenizer.build(tokenizer.option(name).config(vocab_size=420, **fields))
    made.train(tiny.texts(60))
    print(made.fingerprint)
"""
CHOICES = (("bpe", {}), ("bpe", {"level": "char"}), ("wordpiece", {}), ("unigram", {}))


@pytest.fixture(scope="module")
def elsewhere() -> list[str]:
    """Fingerprints of the same trainings in another process."""
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(choices=CHOICES)],
        env={**os.environ, "RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "5", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_training_is_the_same_in_another_process(number: int, elsewhere: list[str]) -> None:
    name, fields = CHOICES[number]
    made = tokenizer.build(tokenizer.option(name).config(vocab_size=420, **fields))
    made.train(tiny.texts(60))
    assert made.fingerprint == elsewhere[number]


def test_letters_with_equal_counts_keep_their_order() -> None:
    """All words are images of one another, so that all is decided by ties."""
    words = ["abcd", "badc", "cdab", "dcba", "abab", "baba", "cdcd", "dcdc"]
    for name in ("bpe", "wordpiece", "unigram"):
        found = set()
        for _ in range(4):
            made = tokenizer.build(tokenizer.option(name).config(vocab_size=290))
            made.train([" ".join(words * 3)])
            found.add(made.fingerprint)
        assert len(found) == 1, name
