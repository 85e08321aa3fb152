"""Files and bytes to pixels."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from txlab.core.errors import RequestError, RunError
from txlab.data.vision.picture import Picture, pixels


def encoded(table: np.ndarray, kind: str = "PNG", mode: str | None = None) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(table, mode).save(stream, kind)
    return stream.getvalue()


def test_values_and_axes():
    table = np.zeros((4, 4, 3), dtype=np.uint8)
    table[0, 3] = (255, 51, 0)
    found = pixels(Image.fromarray(table), size=4, channels=3)
    assert found.shape == (3, 4, 4)
    assert found[:, 0, 3].tolist() == pytest.approx([1.0, 0.2, 0.0])
    assert float(found.sum()) == pytest.approx(1.2)
    gray = pixels(Image.fromarray(table), size=4, channels=1)
    assert float(gray[0, 0, 3]) == pytest.approx(0.299 + 0.587 * 0.2, abs=0.005)


def test_the_middle_square_is_kept():
    wide = np.zeros((4, 10), dtype=np.uint8)
    wide[:, :3] = wide[:, 7:] = 255
    assert float(pixels(Image.fromarray(wide), size=4, channels=1).max()) == 0
    assert float(pixels(Image.fromarray(wide.T.copy()), size=4, channels=3).max()) == 0


def test_transparent_parts_are_white():
    table = np.zeros((2, 2, 4), dtype=np.uint8)
    table[0, 0] = (0, 0, 0, 255)
    found = pixels(Image.fromarray(table), size=2, channels=3)
    assert found[0].flatten().tolist() == [0, 1, 1, 1]


def test_a_picture_of_bytes_and_of_a_file(tmp_path):
    content = encoded(np.full((3, 3), 128, dtype=np.uint8))
    (tmp_path / "a.png").write_bytes(content)
    for one in (Picture("row 1", content), Picture(str(tmp_path / "a.png"))):
        one.check()
        assert torch.equal(pixels(one.open(), size=3, channels=1), torch.full((1, 3, 3), 128 / 255))


def test_what_is_no_picture_is_named(tmp_path):
    (tmp_path / "a.png").write_text("hello")
    with pytest.raises(RequestError, match=r"a\.png: no picture: cannot identify image file\.$"):
        Picture(str(tmp_path / "a.png")).check()
    with pytest.raises(RequestError, match=r"b\.png: no picture: No such file or directory"):
        Picture(str(tmp_path / "b.png")).check()
    content = encoded(np.random.default_rng(0).integers(0, 255, (40, 40), dtype=np.uint8), "JPEG")
    with pytest.raises(RunError, match="row 7: damaged picture"):
        Picture("row 7", content[: len(content) // 2]).open()
