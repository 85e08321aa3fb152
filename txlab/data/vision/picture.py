"""Pictures as files and bytes, to pixels."""

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from txlab.core.errors import RequestError, RunError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")


@dataclass(frozen=True)
class Picture:
    """A picture that is read when it is asked for."""

    where: str
    """The file, or file and row, for messages."""
    content: bytes | None = None
    """What the file would hold; None: `where` is the file."""

    def check(self) -> None:
        """RequestError where it is no picture; reads no more than is needed to tell."""
        from PIL import Image

        try:
            with Image.open(self._stream()) as found:
                found.verify()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise RequestError(f"{self.where}: no picture: {_said(error)}.") from error

    def open(self) -> "Image":
        """The picture; RunError where it turns out to be damaged."""
        from PIL import Image

        try:
            with Image.open(self._stream()) as found:
                found.load()
                return found
        except (OSError, SyntaxError, ValueError) as error:
            raise RunError(f"{self.where}: damaged picture: {_said(error)}.") from error

    def _stream(self) -> io.BytesIO:
        if self.content is not None:
            return io.BytesIO(self.content)
        with open(self.where, "rb") as stream:
            return io.BytesIO(stream.read())


def _said(error: Exception) -> str:
    """The reason alone: Pillow's words name an object in memory."""
    text = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return text.split(" <")[0].rstrip(".")


def pixels(picture: "Image", *, size: int, channels: int) -> Float[Tensor, "c h w"]:
    """The middle square of a picture, scaled to `size`, values from 0 to 1.

    The shorter side is scaled to `size` (bicubic), what the longer one has beyond it is cut off on
    both ends. One channel is luminance; transparent parts are white.
    """
    from PIL import Image

    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        shown = picture.convert("RGBA")
        ground = Image.new("RGBA", shown.size, "white")
        picture = Image.alpha_composite(ground, shown)
    picture = picture.convert("RGB" if channels == 3 else "L")
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    scaled = picture.resize((size, size), Image.Resampling.BICUBIC, box=box)
    table = np.asarray(scaled, dtype=np.float32) / 255
    return torch.from_numpy(table.reshape(size, size, channels).transpose(2, 0, 1).copy())
