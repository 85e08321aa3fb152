"""Pictures with classes: digits, folders, Parquet, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from txlab.core.errors import RequestError
from txlab.data import Images
from txlab.data.tokenizer import BPE
from txlab.data.vision.augment import Augment, augmenting
from txlab.testing import tiny


def made(path: Path | None = None, *, seed: int = 0, **fields: Any) -> Images:
    config = Images.Config(path=None if path is None else str(path), batch_size=4, **fields)
    built = Images(config, BPE.Config(), context=16, seed=seed)
    built.prepare()
    return built


def test_digits_are_the_library_s():
    from sklearn.datasets import load_digits

    built = made(image_size=8, channels=1, mean=0.0, std=1.0)
    assert built.facts["images"] == 1797
    assert built.facts["classes"] == 10
    assert built.names == [str(n) for n in range(10)]
    assert len(built.val) == 180
    raw: Any = load_digits()
    wanted = {
        (tuple((table * 255 / 16).round().astype(int).flatten().tolist()), int(label))
        for table, label in zip(raw.images, raw.target, strict=True)
    }
    for part in (built.train, built.val):
        batch: Any = part.batch(range(len(part)))
        for pixels, label in zip(batch["pixels"], batch["labels"], strict=True):
            found = tuple((pixels * 255).round().int().flatten().tolist())
            assert (found, int(label)) in wanted


def test_a_folder_for_each_class_and_parquet_give_the_same_pictures(tmp_path):
    folder = tiny.images(tmp_path / "pictures")
    files = sorted(folder.rglob("*.png"))
    table = pyarrow.table(
        {
            "image": [{"bytes": f.read_bytes(), "path": f.name} for f in files],
            "label": [f.parent.name for f in files],
        }
    )
    parquet.write_table(table, tmp_path / "pictures.parquet")

    def content(built: Images) -> set[tuple[Any, ...]]:
        batches: list[Any] = [part.batch(range(len(part))) for part in (built.train, built.val)]
        return {
            (tuple(pixels.flatten().tolist()), built.names[int(label)])
            for batch in batches
            for pixels, label in zip(batch["pixels"], batch["labels"], strict=True)
        }

    one, other = made(folder, image_size=6), made(tmp_path / "pictures.parquet", image_size=6)
    assert one.names == other.names == ["cat", "dog"]
    assert len(one.train) == len(other.train) == 36
    assert content(one) == content(other)
    assert len(content(one)) == 40


def test_numbered_classes_are_in_the_order_of_the_numbers(tmp_path):
    picture = next(tiny.images(tmp_path / "some").rglob("*.png"))
    for name in ("10", "9", "cat"):
        (tmp_path / "all" / name).mkdir(parents=True)
        (tmp_path / "all" / name / "a.png").write_bytes(picture.read_bytes())
    assert made(tmp_path / "all", val_fraction=0).names == ["9", "10", "cat"]


@pytest.mark.parametrize("kind", [Augment.flip, Augment.shift])
def test_augmentation_is_a_function_of_seed_epoch_and_row(tmp_path, kind):
    folder = tiny.images(tmp_path / "pictures")
    built, other = (made(folder, augment=kind, image_size=10, seed=s) for s in (0, 1))
    rows = list(range(20))
    draws = [
        b.train.drawn(rows, [e] * 20)["pixels"] for b, e in ((built, 0), (built, 1), (other, 0))
    ]
    assert torch.equal(draws[0], built.train.drawn(rows, [0] * 20)["pixels"])
    assert not torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(
        draws[0][3], built.train.drawn([3], [0])["pixels"][0]
    )  # whatever else is in the batch


def test_flip_and_shift_move_pixels_only():
    table = torch.arange(64.0).reshape(1, 8, 8)
    flip, shift = (augmenting(kind, 8) for kind in (Augment.flip, Augment.shift))
    assert flip is not None
    assert shift is not None
    flips = [flip(table, seed=0, epoch=e, row=0) for e in range(40)]
    mirrored = sum(torch.equal(f, table.flip(-1)) for f in flips)
    assert mirrored + sum(torch.equal(f, table) for f in flips) == 40
    assert 8 < mirrored < 32
    places = {tuple(shift(table, seed=0, epoch=e, row=0)[0, 3:5, 3].tolist()) for e in range(200)}
    assert len(places) == 9
    assert all(below - above == 8 for above, below in places)


def test_torchvision_where_it_is_installed_else_a_line():
    try:
        from torchvision.transforms import v2  # noqa: F401
    except (ImportError, RuntimeError):
        with pytest.raises(RequestError, match=r"data\.augment=crop needs torchvision"):
            augmenting(Augment.crop, 8)
        return
    for kind in (Augment.crop, Augment.rand_augment):
        change = augmenting(kind, 8)
        assert change is not None
        table = torch.rand(3, 8, 8)
        state = torch.get_rng_state()
        one, same, other = (change(table, seed=0, epoch=e, row=0) for e in (0, 0, 1))
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


def test_bad_input(tmp_path):
    folder = tiny.images(tmp_path / "pictures")
    with pytest.raises(RequestError, match="expected a folder with a folder of pictures"):
        made(tmp_path / "nowhere")
    with pytest.raises(RequestError, match="has no folders, one for each class"):
        made(folder / "cat")
    (folder / "dog" / "torn.png").write_bytes(b"no picture")
    with pytest.raises(RequestError, match=r"torn\.png: no picture"):
        made(folder)
    skipped = made(folder, on_error="skip")
    assert skipped.facts["dropped_unreadable"] == 1
    assert skipped.facts["images"] == 40
    (folder / "empty").mkdir()
    with pytest.raises(RequestError, match=r"empty: there is no picture \(\.png, "):
        made(folder, on_error="skip")
    for name in ("cat", "empty"):
        for file in (folder / name).iterdir():
            file.unlink()
        (folder / name).rmdir()
    with pytest.raises(RequestError, match="of 1 classes; two classes are needed"):
        made(folder, on_error="skip")
    parquet.write_table(pyarrow.table({"picture": [b""]}), tmp_path / "a.parquet")
    with pytest.raises(RequestError, match=r"no column 'image'; there are: picture"):
        made(tmp_path / "a.parquet")
    for fields in ({"image_size": 0}, {"channels": 2}, {"std": 0.0}, {"val_fraction": 1.0}):
        with pytest.raises(RequestError, match=next(iter(fields))):
            Images.Config(**fields)


def test_a_preview_draws_what_is_there(tmp_path):
    (tmp_path / "some" / "left").mkdir(parents=True)
    (tmp_path / "some" / "right").mkdir()
    for name, columns in (("left", slice(0, 8)), ("right", slice(8, 16))):
        table = np.full((16, 16), 255, dtype=np.uint8)
        table[:, columns] = 0
        Image.fromarray(table).save(tmp_path / "some" / name / "a.png")
    built = made(tmp_path / "some", image_size=16, val_fraction=0)
    for shown in built.preview(2):
        name, *lines = shown.split("\n")
        assert len(lines) == 14
        for line in lines:
            half = "@" * 13
            assert line[:13] == half if name == "left" else line[15:28] == half
            assert line.strip("@- =+:.*#%") == ""
