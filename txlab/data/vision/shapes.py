"""Drawn coloured shapes and sentences about them: pictures with captions that need no file."""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = {
    "red": (214, 39, 40),
    "green": (44, 160, 44),
    "blue": (31, 119, 180),
    "yellow": (230, 200, 30),
    "purple": (148, 103, 189),
    "orange": (255, 127, 14),
    "black": (20, 20, 20),
    "gray": (140, 140, 140),
}
SHAPES = ("circle", "square", "triangle", "diamond")
SIZES = {"small": 0.15, "large": 0.24}
"""Half the width of a shape, as a share of the picture's."""
RELATIONS = ("left of", "right of", "above", "below")


@dataclass(frozen=True)
class Scene:
    """One shape, or two beside or above each other."""

    shapes: tuple[tuple[str, str, str], ...]
    """(size, colour, shape) of each."""
    relation: str | None
    """Where the first stands, seen from the second."""
    places: tuple[tuple[float, float], ...]
    """Centre of each, as shares of width and height."""

    @property
    def sentence(self) -> str:
        """What is to be seen: `a small red circle left of a large blue square`."""
        named = [f"a {size} {colour} {shape}" for size, colour, shape in self.shapes]
        return named[0] if self.relation is None else f"{named[0]} {self.relation} {named[1]}"

    def drawn(self, size: int) -> "Image":
        """The picture, `size` pixels high and wide."""
        from PIL import Image, ImageDraw

        fine = 4 * size  # drawn large and scaled down: soft edges
        picture = Image.new("RGB", (fine, fine), "white")
        pen = ImageDraw.Draw(picture)
        for (extent, colour, shape), (x, y) in zip(self.shapes, self.places, strict=True):
            r = SIZES[extent] * fine
            x, y = x * fine, y * fine
            fill = COLOURS[colour]
            if shape == "circle":
                pen.ellipse((x - r, y - r, x + r, y + r), fill=fill)
            elif shape == "square":
                pen.rectangle((x - r, y - r, x + r, y + r), fill=fill)
            elif shape == "triangle":
                pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=fill)
            else:
                pen.polygon([(x, y - r), (x - r, y), (x, y + r), (x + r, y)], fill=fill)
        return picture.resize((size, size), Image.Resampling.LANCZOS)


def scene(source: random.Random) -> Scene:
    """A scene from random numbers; two shapes of it are never alike."""
    kinds = [(s, c, f) for s in SIZES for c in COLOURS for f in SHAPES]
    if source.random() < 0.25:
        place = (source.uniform(0.3, 0.7), source.uniform(0.3, 0.7))
        return Scene((source.choice(kinds),), None, (place,))
    one, other = source.sample(kinds, 2)
    relation = source.choice(RELATIONS)
    along = (source.uniform(0.24, 0.28), source.uniform(0.72, 0.76))
    if relation in ("right of", "below"):
        along = along[::-1]
    across = (source.uniform(0.3, 0.7), source.uniform(0.3, 0.7))
    places = tuple(zip(along, across, strict=True))
    if relation in ("above", "below"):
        places = tuple((x, y) for y, x in places)
    return Scene((one, other), relation, places)
