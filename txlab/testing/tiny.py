"""Everything a contract is tried on, as small as it can be: sizes, models, tokens, masks, texts."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.data.batch import IGNORE, Batch
from txlab.data.tokenizer.bpe import BPE
from txlab.models.decoder import Decoder

DIMS = Dims(dim=32, n_heads=4, head_dim=8, n_layers=2, context=32, vocab_size=61)
"""The size that most checks use."""
SIZES = (
    Dims(dim=8, n_heads=1, head_dim=8, n_layers=1, context=16, vocab_size=17),
    DIMS,
    Dims(dim=48, n_heads=6, head_dim=10, n_layers=3, context=40, vocab_size=97),
)
"""The sizes at which every option's defaults must build; in the last, heads are wider than dim."""
WORDS = (
    *("attention", "causal", "cosine", "decoder", "every", "float", "gradient", "head", "index"),
    *("key", "layer", "mask", "norm", "optimizer", "position", "query", "residual", "softmax"),
    *("token", "update", "value", "weight", "the", "a", "of", "and", "is", "not", "with", "where"),
)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run with torch's generator seeded, and leave the caller's as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def floats(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cpu").to(dtype)


def tokens(batch: int, length: int, *, vocab_size: int = DIMS.vocab_size, seed: int = 0) -> Tensor:
    """Token ids [b t], uniform over the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (batch, length), generator=generator, device="cpu")


def shake(module: nn.Module, seed: int = 1) -> nn.Module:
    """`module` with every parameter moved away from its start, as training would.

    Matrices keep the size of activations, vectors move by about 0.3: no zero, no one and no
    symmetry is left that could hide a dead or a forgotten parameter.
    """
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            noise = floats(*parameter.shape, seed=1000 * seed + i).to(parameter.dtype)
            if parameter.ndim >= 2:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(0.3 * noise)
    return module


def model(dims: Dims = DIMS, *, seed: int = 0, start: bool = False, **choices: Any) -> Decoder:
    """A decoder of this size in evaluation mode; `choices` are fields of its config.

    It is shaken, or as its initialisation left it where `start` is true.
    """
    config = Decoder.Config(
        dim=dims.dim,
        n_heads=dims.n_heads,
        head_dim=dims.head_dim,
        n_layers=dims.n_layers,
        context=dims.context,
        vocab_size=dims.vocab_size,
        **choices,
    )
    with seeded(seed):
        built = Decoder(config, config.dims())
    if not start:
        shake(built, seed + 1)
    return built.eval()


def padded(lengths: Sequence[int], *, left: bool) -> Tensor:
    """`valid` [b t] for rows of these lengths, padded on one side to the longest."""
    index = torch.arange(max(lengths))
    counts = torch.tensor(lengths)[:, None]
    return index >= max(lengths) - counts if left else index < counts


def paddings(lengths: Sequence[int]) -> dict[str, Tensor]:
    """`valid` [b t] for rows of these lengths: padded left, right, and between their tokens."""
    width = max(lengths)
    spread = torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, n in enumerate(lengths):
        spread[row, torch.arange(n) * width // max(n, 1)] = True
    return {
        "left": padded(lengths, left=True),
        "right": padded(lengths, left=False),
        "between": spread,
    }


def batch(rows: int = 2, length: int = 12, *, seed: int = 0) -> Batch:
    """Rows of two packed documents each, the last row padded at its end by three places."""
    ids = tokens(rows, length, seed=seed)
    documents = (torch.arange(length) >= length // 3).long().expand(rows, -1).clone()
    starts = torch.where(documents == 0, 0, length // 3)
    valid = torch.ones(rows, length, dtype=torch.bool)
    valid[-1, -3:] = False
    labels = ids.roll(-1, 1)
    same = (documents == documents.roll(-1, 1)) & valid & valid.roll(-1, 1)
    same[:, -1] = False
    return {
        "tokens": ids,
        "labels": labels.where(same, IGNORE),
        "positions": torch.arange(length) - starts,
        "documents": documents,
        "valid": valid,
    }


def paired(items: int = 3, length: int = 12, *, seed: int = 0) -> Batch:
    """Rows in turn chosen and rejected, after a prompt of 4 tokens; answers of 2 to 5, padded."""
    ids = tokens(2 * items, length, seed=seed)
    ids[1::2, :4] = ids[0::2, :4]
    places = torch.arange(length)
    ends = (torch.arange(2 * items) % 4 + 6)[:, None]
    return {
        "tokens": ids,
        "labels": ids.roll(-1, 1).where((places >= 3) & (places < ends - 1), IGNORE),
        "valid": places < ends,
    }


def corpus(folder: Path, *, documents: int = 40, seed: int = 0) -> Path:
    """`folder`, filled with .txt files of made-up sentences, each file one document."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts(documents, seed=seed)):
        (folder / f"{number:03d}.txt").write_text(text, encoding="utf-8")
    return folder


def texts(documents: int = 40, *, seed: int = 0) -> list[str]:
    """Made-up documents of 30 to 120 words, none like another."""
    source = random.Random(seed)
    found = []
    for number in range(documents):
        words = source.choices(WORDS, k=source.randint(30, 120))
        found.append(f"Note {number}. " + " ".join(words).capitalize() + ".\n")
    return found


def tokenizer(folder: Path, vocab_size: int = 320) -> Path:
    """`folder` with the tokenizer of a foreign model: a tokenizer.json and its settings."""
    made = BPE(BPE.Config(vocab_size=vocab_size))
    made.train(texts())
    folder.mkdir(parents=True, exist_ok=True)
    made.save(folder / "tokenizer.json")
    settings = {**made.special, "add_bos_token": True, "chat_template": made.template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def chats(folder: Path) -> Path:
    """A .jsonl file in `folder` of chats with one or two turns, as many as `texts`."""
    return _lines(folder / "chats.jsonl", ({"messages": chat} for chat in _chats()))


def pairs(folder: Path) -> Path:
    """A .jsonl file in `folder` of prompts with a chosen and a rejected answer."""
    return _lines(
        folder / "pairs.jsonl",
        (
            {"prompt": chat[:-1], "chosen": chat[-1]["content"], "rejected": "No, thanks."}
            for chat in _chats()
        ),
    )


def prompts(folder: Path) -> Path:
    """A .jsonl file in `folder` of prompts with a reference answer."""
    asked = ({"prompt": chat[:-1], "answer": chat[-1]["content"]} for chat in _chats())
    return _lines(folder / "prompts.jsonl", asked)


def images(folder: Path) -> Path:
    """`folder` with 20 pictures of 10 x 12 pixels in each of two folders, one for each class."""
    for number in range(40):
        place = folder / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        _picture(number).save(place / f"{number:02d}.png")
    return folder


def captions(folder: Path) -> Path:
    """`folder` with 40 pictures and captions.jsonl, which has a sentence for each."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number in range(40):
        _picture(number).save(folder / f"{number:02d}.png")
        words = random.Random(number).sample(WORDS, 4)
        entries.append({"image": f"{number:02d}.png", "text": f"Note {number}. {' '.join(words)}."})
    _lines(folder / "captions.jsonl", iter(entries))
    return folder


def _picture(seed: int) -> Any:
    from PIL import Image

    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(256, (12, 10, 3), generator=generator, dtype=torch.uint8, device="cpu")
    return Image.fromarray(table.numpy())


def _chats() -> Iterator[list[dict[str, str]]]:
    source = random.Random(0)
    for number in range(len(texts())):
        chat = []
        for turn in range(1 + number % 2):
            first, second = source.sample(WORDS, 2)
            asked = f"Note {number}. {first}?" if turn == 0 else f"{first}?"
            chat += [
                {"role": "user", "content": asked},
                {"role": "assistant", "content": f"{second} {first}."},
            ]
        yield chat


def _lines(file: Path, entries: Iterator[Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return file


FILES: dict[str, Callable[[Path], Path]] = {
    "documents": corpus, "chats": chats, "pairs": pairs, "prompts": prompts, "images": images,
    "captions": captions,
}  # fmt: skip
"""Makes files of what a data option reads (`Data.reads`)."""
