"""Pictures with a class each."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch

from txlab.core.errors import RequestError
from txlab.data.batch import Batch
from txlab.data.cache import absolute, key
from txlab.data.chance import HELD_OUT
from txlab.data.collection import OnError
from txlab.data.rows import FreshRows
from txlab.data.source import Data, data
from txlab.data.split import by_digest
from txlab.data.tokenizer.tokenizer import Tokenizer
from txlab.data.vision.augment import Augment, augmenting
from txlab.data.vision.picture import pixels
from txlab.data.vision.reading import Item, checked, classes, digits

SHADES = "@%#*+=-:. "
"""From dark to bright."""


class Vision(Data):
    """What pictures with classes and pictures with sentences have in common."""

    shifted: ClassVar[bool] = False

    @dataclass
    class Config(Data.Config):
        """Fields shared by data with pictures."""

        path: str | None = None
        """Where the pictures are; None: what needs no file."""
        image_size: int = 32
        """Height and width that pictures are scaled to, after cutting out the middle square."""
        channels: int = 3
        """3: red, green, blue; 1: luminance."""
        mean: float = 0.5
        """Taken from all values, which are from 0 to 1."""
        std: float = 0.5
        """What values are divided by afterwards."""
        augment: Augment = Augment.none
        """How training pictures are changed from epoch to epoch."""
        val_fraction: float = 0.1
        """Part of the pictures that is held out for validation."""
        on_error: OnError = OnError.error
        """error: a file that is no picture ends the run; skip: it is left out and counted."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.image_size > 0, "image_size", "a number above 0")
            self.require(self.channels in (1, 3), "channels", "1 or 3")
            self.require(self.std > 0, "std", "a number above 0")
            self.require(0 <= self.val_fraction < 1, "val_fraction", "a number from 0 to below 1")
            self.path = absolute(self.path)

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer.Config | Tokenizer,
        *,
        context: int,
        seed: int = 0,
    ) -> None:
        super().__init__(config, tokenizer, context=context, seed=seed)
        self._change = augmenting(config.augment, config.image_size)

    def shown(
        self, picture: Any, *, training: bool, epoch: int = HELD_OUT, number: int = 0
    ) -> torch.Tensor:
        """Normalised pixels [c h w] of a picture, changed where it is one to train on."""
        config = cast(Vision.Config, self.config)
        found = pixels(picture, size=config.image_size, channels=config.channels)
        if training and self._change is not None:
            found = self._change(found, seed=self.seed, epoch=epoch, row=number)
        return (found - config.mean) / config.std


@data("images")
class Images(Vision):
    """Pictures with a class: a folder for each class, Parquet, or scikit-learn's digits.

    A batch has `pixels` [b c h w] and `labels` [b], the number of the class in the order of the
    names. Held out are those with the lowest hashes, whatever the seed: of names in folders, of
    contents elsewhere.
    """

    reads: ClassVar[str] = "images"
    keys = ("pixels", "labels")

    @dataclass
    class Config(Vision.Config):
        """Fields of pictures with a class."""

    def prepare(self) -> None:
        config = cast(Images.Config, self.config)
        dropped: Counter[str] = Counter()
        found = digits() if config.path is None else classes(config.path)
        items = checked(found, config.on_error, dropped)
        self.names = sorted({item.about for item in items}, key=_numeric)
        train, val = by_digest(items, lambda item: item.mark, config.val_fraction)
        self._enough(train)
        self.train, self.val = ImageRows(self, train, training=True), ImageRows(self, val)
        self.facts = {
            "source": config.path or "scikit-learn's digits",
            "sha256": key(marks=[item.mark.hex() for item in items]),
            "images": len(items),
            **{f"dropped_{name}": n for name, n in sorted(dropped.items())},
            "classes": len(self.names),
            "train_rows": len(train),
            "val_rows": len(val),
            "image_size": config.image_size,
            "channels": config.channels,
        }

    def preview(self, n: int = 3, width: int = 400) -> list[str]:
        """The class and a drawing in letters, at most `width` of them, of the first rows of step 0.

        The darker a letter is, the darker the place.
        """
        batch: Any = self.step_batches().at(0)[0]
        pictures, labels = batch["pixels"][:n], batch["labels"][:n].tolist()
        return [
            f"{self.names[label]}\n{_drawn(picture.mean(0), width)}"
            for picture, label in zip(pictures, labels, strict=True)
        ]

    def _enough(self, train: Sequence[Item[str]]) -> None:
        if len(self.names) < 2 or not train:
            raise RequestError(
                f"data.path={cast(Images.Config, self.config).path}: {len(train)} pictures to "
                f"train on, of {len(self.names)} classes; two classes are needed."
            )


class ImageRows(FreshRows):
    """Pictures, decoded when they are asked for."""

    def __init__(self, images: Images, items: Sequence[Item[str]], *, training: bool = False):
        self._images, self._items, self._training = images, items, training
        self._number = {name: i for i, name in enumerate(images.names)}

    def __len__(self) -> int:
        return len(self._items)

    def drawn(self, indices: Sequence[int], epochs: Sequence[int]) -> Batch:
        pixels = [
            self._images.shown(
                self._items[i].picture.open(), training=self._training, epoch=epoch, number=i
            )
            for i, epoch in zip(indices, epochs, strict=True)
        ]
        labels = [self._number[self._items[i].about] for i in indices]
        return cast(Batch, {"pixels": torch.stack(pixels), "labels": torch.tensor(labels)})


def _drawn(shades: torch.Tensor, most: int) -> str:
    """Values [h w] as lines of letters, twice as wide as high, as letters are narrow."""
    rows = max(1, min(len(shades), int((most / 2) ** 0.5)))
    small = torch.nn.functional.adaptive_avg_pool2d(shades[None], (rows, 2 * rows))[0]
    low, high = small.min(), small.max()
    place = ((small - low) / (high - low).clamp(min=1e-6) * (len(SHADES) - 1)).round().long()
    return "\n".join("".join(SHADES[i] for i in line).rstrip() for line in place.tolist())


def _numeric(name: str) -> tuple[int, int | str]:
    """Numbers by value, before names by spelling."""
    return (0, int(name)) if name.isdecimal() else (1, name)
