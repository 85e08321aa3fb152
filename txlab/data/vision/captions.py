"""Pictures with a sentence each."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch

from txlab.core.errors import RequestError
from txlab.data.batch import IGNORE, Batch
from txlab.data.cache import absolute, cache_folder, key
from txlab.data.rows import FreshRows, padded
from txlab.data.source import data
from txlab.data.split import by_digest
from txlab.data.tokenizer.making import obtain
from txlab.data.vision.images import Vision
from txlab.data.vision.reading import captioned, checked
from txlab.data.vision.shapes import scene

Pair = tuple[Callable[[], Any], str]
"""What opens or draws a picture, and its sentence."""


@data("captions")
class Captions(Vision):
    """Pictures with a sentence: a folder with captions.jsonl, Parquet, or drawn coloured shapes.

    A batch has `pixels` [b c h w] and the sentence: `tokens` [b t] from <bos> to <eos>, padded,
    `labels` the next ones. A sentence longer than the context loses its end, not <eos>. Drawn
    scenes that are held out have a sentence that no scene to train on has.
    """

    reads: ClassVar[str] = "captions"
    keys = ("pixels", "tokens", "labels", "valid")
    shifted = True

    @dataclass
    class Config(Vision.Config):
        n_train: int = 4000
        """Scenes to train on, where they are drawn."""
        n_val: int = 400
        """Scenes held out, where they are drawn."""
        items_seed: int = 0
        """Seed of the scenes; the run's own seed leaves them as they are."""
        cache_dir: str | None = None
        """Folder for tokenizers; None: $XDG_CACHE_HOME/txlab or ~/.cache/txlab."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.n_train > 0, "n_train", "a number above 0")
            self.require(self.n_val >= 0, "n_val", "0 or more")
            self.cache_dir = absolute(self.cache_dir)

    def prepare(self) -> None:
        config = cast(Captions.Config, self.config)
        dropped: Counter[str] = Counter()
        train, val = self._drawn() if config.path is None else self._read(dropped)
        if not train:
            raise RequestError(f"data.path={config.path}: there is no picture to train on.")
        texts = [text for _, text in train]
        self.tokenizer = obtain(
            self._tokenizer,
            cache=cache_folder(config.cache_dir),
            source=key(captions=texts),
            train=lambda fresh: fresh.train(texts),
        )
        self.train = CaptionRows(self, train, training=True)
        self.val = CaptionRows(self, val)
        self.facts = {
            "source": config.path or "drawn shapes",
            "sha256": key(texts=[text for _, text in [*train, *val]]),
            "images": len(train) + len(val),
            **{f"dropped_{name}": n for name, n in sorted(dropped.items())},
            "train_rows": len(train),
            "val_rows": len(val),
            "cut_captions": self.train.cut + self.val.cut,
            "image_size": config.image_size,
            "channels": config.channels,
            "tokenizer": self.tokenizer.fingerprint,
            "vocab_size": self.tokenizer.vocab_size,
            "context": self.context,
        }

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids from <bos> to <eos>, as many as there are."""
        mine = self.tokenizer
        begin = [] if mine.bos_id is None else [mine.bos_id]
        return [[*begin, *ids, mine.eos_id] for ids in mine.encode_batch(sentences)]

    def _drawn(self) -> tuple[list[Pair], list[Pair]]:
        config = cast(Captions.Config, self.config)
        source = random.Random(f"scenes-{config.items_seed}")
        val = [scene(source) for _ in range(config.n_val)]
        taken = {drawn.sentence for drawn in val}
        train = []
        while len(train) < config.n_train:
            drawn = scene(source)
            if drawn.sentence not in taken:
                train.append(drawn)

        def pair(drawn: Any) -> Pair:
            return (lambda: drawn.drawn(config.image_size)), drawn.sentence

        return [pair(drawn) for drawn in train], [pair(drawn) for drawn in val]

    def _read(self, dropped: Counter[str]) -> tuple[list[Pair], list[Pair]]:
        config = cast(Captions.Config, self.config)
        items = checked(captioned(str(config.path)), config.on_error, dropped)
        train, val = by_digest(items, lambda item: item.mark, config.val_fraction)
        return (
            [(item.picture.open, item.about) for item in train],
            [(item.picture.open, item.about) for item in val],
        )


class CaptionRows(FreshRows):
    """Pictures, made when they are asked for, and the ids of their sentences."""

    def __init__(self, captions: Captions, pairs: Sequence[Pair], *, training: bool = False):
        self._captions, self._training = captions, training
        self._pictures = [make for make, _ in pairs]
        whole = captions.encode([text for _, text in pairs])
        self.cut = sum(len(ids) > captions.context for ids in whole)
        eos = captions.tokenizer.eos_id
        self._ids = [
            ids if len(ids) <= captions.context else [*ids[: captions.context - 1], eos]
            for ids in whole
        ]

    def __len__(self) -> int:
        return len(self._ids)

    def drawn(self, indices: Sequence[int], epochs: Sequence[int]) -> Batch:
        pixels = [
            self._captions.shown(
                self._pictures[i](), training=self._training, epoch=epoch, number=i
            )
            for i, epoch in zip(indices, epochs, strict=True)
        ]
        told = [
            (torch.tensor(ids), torch.tensor([*ids[1:], IGNORE]))
            for ids in (self._ids[i] for i in indices)
        ]
        text = padded(told, self._captions.tokenizer.pad_id)
        return cast(Batch, {"pixels": torch.stack(pixels), **text})
