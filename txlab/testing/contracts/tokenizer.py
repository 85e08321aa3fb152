"""Tokenizers: exact round trips, control tokens out of reach of text, one vocabulary everywhere."""

import tempfile
from pathlib import Path
from typing import Any

from txlab.testing import tiny
from txlab.testing.assertions import expect
from txlab.testing.harness import Subject, contract

TOKENIZER = "tokenizer"
VOCABULARY = 400
SAMPLES = (
    "",
    "a",
    "  a  b\n\t",
    "line\r\nbreak\u2028and\u00a0space ",
    "caf\u00e9 cafe\u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family",
    "\ufeffmark and \x00 nothing",
    "日本語のテキスト",
    "def f(x):\n    return x**2  # squared\n",
    "x" * 300,
    "\ud7ff\ue000\U0010ffff",
)
"""Texts that tokenizers lose something of."""


def trained(subject: Subject) -> Any:
    """The option with a small vocabulary, trained on the tiny corpus, or loaded where it is not."""
    if not trainable(subject):
        with tempfile.TemporaryDirectory() as folder:
            path = str(tiny.tokenizer(Path(folder), VOCABULARY))
            return subject.option.cls.from_path(subject.config(path=path))
    built = subject.build(config=subject.config(vocab_size=VOCABULARY))
    built.train(tiny.texts())
    return built


def trainable(subject: Subject) -> bool:
    """Whether the option makes tokenizers of texts; else it only reads those of others."""
    return subject.option.cls.trainable


def learns(subject: Subject) -> bool:
    """Whether the texts that it is trained on decide its ids."""
    return trainable(subject) and subject.option.cls.learns


@contract(TOKENIZER)
def text_survives(subject: Subject) -> None:
    """Any text comes back from its ids exactly; where some is lost, known words still do."""
    built = trained(subject)
    seen = tiny.texts()
    for text in (*SAMPLES, *tiny.texts(5, seed=1)) if built.exact else seen:
        back, wanted = built.decode(built.encode(text)), text
        if not built.exact:
            back, wanted = (_letters(t) for t in (back, built.normalised(text)))
        expect(back == wanted, f"{text[:40]!r} came back as {back[:40]!r}")


def _letters(text: str) -> str:
    return "".join(text.split())


@contract(TOKENIZER)
def unknown_text_is_counted(subject: Subject) -> None:
    """Only what is not exact has unknown text, and a token for it; training text has none of it."""
    built = trained(subject)
    counts = [built.encode(text).count(built.unk_id) for text in tiny.texts()]
    expect(not any(counts), f"{sum(counts)} unknown tokens in the training text")
    for text in SAMPLES:
        ids = built.encode(text)
        kept = _letters(built.normalised(text)) == _letters(built.decode(ids))
        expect(kept or built.unk_id in ids, f"{text[:40]!r} is lost, and nothing counts it")


@contract(TOKENIZER)
def ids_are_in_the_vocabulary(subject: Subject) -> None:
    """Ids lie in 0 to vocab_size - 1, control ids included; what ends a text is one of those."""
    built = trained(subject)
    control = set(built.control.values())
    named = {built.bos_id, built.eos_id, built.pad_id, *built.end_ids} - {None}
    expect(len(control) == len(built.control), "two control tokens have one id")
    expect(named <= control, f"ids {sorted(named - control)} are no control tokens")
    expect(built.eos_id in built.end_ids, "eos ends nothing")
    expect(built.bos_id not in built.end_ids, "bos ends texts")
    texts = (*SAMPLES, *tiny.texts())
    ids = {i for text in texts for i in built.encode(text)} | control
    low, high = min(ids), max(ids)
    expect(low >= 0 and high < built.vocab_size, f"ids from {low} to {high} of {built.vocab_size}")
    expect(built.vocab_size <= VOCABULARY, f"{built.vocab_size} tokens, {VOCABULARY} asked for")


@contract(TOKENIZER)
def text_makes_no_control_token(subject: Subject) -> None:
    """Text that spells a control token is encoded as letters, and comes back."""
    built = trained(subject)
    control = set(built.control.values()) - {built.unk_id}
    others = "<|bos|> <|eos|> <|pad|> <s> </s> [PAD] <pad> <bos> <eos>"
    names = [*built.control, *others.split()]
    for text in (*names, f"a {' '.join(names)} b", *(f"x{name}y" for name in names)):
        ids = built.encode(text)
        expect(not control & set(ids), f"{text!r} is encoded with a control id: {ids}")
        back = built.decode(ids)
        expect(back == text or not built.exact, f"{text!r} came back as {back!r}")


@contract(TOKENIZER)
def control_tokens_are_no_text(subject: Subject) -> None:
    """Control ids decode to nothing, alone and between other ids."""
    built = trained(subject)
    ids = [*built.control.values(), *built.encode("a cat"), built.eos_id, built.pad_id]
    expect(built.decode(ids) == "a cat", f"with control ids around it: {built.decode(ids)!r}")


@contract(TOKENIZER)
def loads_as_it_was_saved(subject: Subject) -> None:
    """Saved and loaded it gives the same ids and fingerprint; the file needs nothing beside it."""
    built = trained(subject)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        built.save(file)
        expect([f.name for f in Path(folder).iterdir()] == [file.name], "saving left other files")
        moved = Path(folder) / "moved.json"
        file.rename(moved)
        loaded = subject.option.cls.load(moved)
    expect(loaded.fingerprint == built.fingerprint, "another fingerprint after loading")
    expect(loaded.vocab_size == built.vocab_size, "another vocabulary size after loading")
    for name in (
        *("bos_id", "eos_id", "pad_id", "unk_id", "control", "end_ids", "special", "template"),
        *("exact",),
    ):
        expect(getattr(loaded, name) == getattr(built, name), f"another {name} after loading")
    for text in SAMPLES:
        expect(
            loaded.encode(text) == built.encode(text), f"other ids of {text[:40]!r} after loading"
        )


@contract(TOKENIZER, when=learns)
def trains_the_same_way_twice(subject: Subject) -> None:
    """The same texts give the same tokenizer, other texts another one."""
    first, again = trained(subject), trained(subject)
    expect(first.fingerprint == again.fingerprint, "two trainings on one text differ")
    other = subject.build(config=subject.config(vocab_size=VOCABULARY))
    other.train(["zzz yyy xxx www " * 50] * 9)
    expect(first.fingerprint != other.fingerprint, "training on other texts changes nothing")


@contract(TOKENIZER, when=learns)
def learns_from_text(subject: Subject) -> None:
    """Trained on a text, it needs fewer tokens for it than there are bytes."""
    built = trained(subject)
    text = "".join(tiny.texts(10))
    n, size = len(built.encode(text)), len(text.encode())
    expect(n < 0.95 * size, f"{n} tokens for {size} bytes")


@contract(TOKENIZER)
def counts_bytes(subject: Subject) -> None:
    """`token_bytes` of ids add up to the bytes they stand for; control tokens count none."""
    built = trained(subject)
    sizes = built.token_bytes()
    expect(len(sizes) == built.vocab_size, f"{len(sizes)} sizes for {built.vocab_size} tokens")
    for text in SAMPLES:
        total = int(sizes[built.encode(text)].sum()) if text else 0
        stands = text.encode() if built.exact else built.decode_bytes(built.encode(text))
        expect(total == len(stands), f"{total} bytes counted in {text[:40]!r}")
    for i in built.control.values():
        expect(int(sizes[i]) == 0, f"control token {i} counts {int(sizes[i])} bytes")


@contract(TOKENIZER)
def batches_and_pieces_agree(subject: Subject) -> None:
    """`encode_batch` gives what `encode` gives; so do the pieces of a text, one after another."""
    built = trained(subject)
    expect(
        built.encode_batch(SAMPLES) == [built.encode(t) for t in SAMPLES], "encode_batch differs"
    )
    text = "".join(tiny.texts(20))
    pieces = list(built.pieces(text))
    expect("".join(pieces) == text, "the pieces do not make up the text")
    joined = [i for piece in pieces for i in built.encode(piece)]
    expect(joined == built.encode(text), "ids of the pieces are not those of the text")
