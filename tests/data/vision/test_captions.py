"""Pictures with sentences: drawn ones show what is said, read ones are what the file says."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from txlab.core.errors import RequestError
from txlab.data import IGNORE, Captions
from txlab.data.tokenizer import BPE
from txlab.data.vision.shapes import COLOURS, RELATIONS, SHAPES, SIZES, Scene, scene
from txlab.testing import tiny


def made(folder: Path, path: Path | None = None, *, context: int = 64, **fields: Any) -> Captions:
    config = Captions.Config(
        path=None if path is None else str(path), cache_dir=str(folder), batch_size=4, **fields
    )
    built = Captions(config, BPE.Config(vocab_size=400), context=context)
    built.prepare()
    return built


def centre(table: np.ndarray, colour: str) -> tuple[float, float]:
    """(x, y) of the middle of what has a colour."""
    near = (np.abs(table.astype(int) - np.array(COLOURS[colour])).sum(-1) < 60).nonzero()
    assert len(near[0]) > 10
    return float(near[1].mean()), float(near[0].mean())


def test_what_is_drawn_is_what_is_said():
    source = random.Random(0)
    seen = set()
    for _ in range(200):
        found = scene(source)
        words = found.sentence.split()
        assert {w for w in words if w in COLOURS} == {c for _, c, _ in found.shapes}
        seen |= {found.relation, *words}
        colours = [c for _, c, _ in found.shapes]
        if found.relation is None or len({*colours}) == 1:
            continue
        table = np.asarray(found.drawn(64))
        (x, y), (u, v) = (centre(table, colour) for colour in colours)
        apart = {"left of": u - x, "right of": x - u, "above": v - y, "below": y - v}
        assert apart[found.relation] > 15, found.sentence
    assert seen >= {*COLOURS, *SHAPES, *SIZES, *RELATIONS, None}


def test_shapes_and_sizes_are_told_apart():
    areas = {
        (size, shape): int(
            (np.asarray(Scene(((size, "black", shape),), None, ((0.5, 0.5),)).drawn(64)) < 128)
            .all(-1)
            .sum()
        )
        for size in SIZES
        for shape in SHAPES
    }
    side = 2 * SIZES["large"] * 64
    expected = {"square": 1.0, "circle": np.pi / 4, "triangle": 0.5, "diamond": 0.5}
    for shape, share in expected.items():
        assert areas["large", shape] == pytest.approx(share * side**2, rel=0.12)
        assert areas["small", shape] < 0.5 * areas["large", shape]


def test_rows_hold_the_sentence_and_held_out_ones_are_new(tmp_path):
    built = made(tmp_path, n_train=200, n_val=40)
    told = []
    for part in (built.train, built.val):
        batch: Any = part.batch(range(len(part)))
        assert batch["pixels"].shape == (len(part), 3, 32, 32)
        sentences = []
        for tokens, labels, valid in zip(
            batch["tokens"], batch["labels"], batch["valid"], strict=True
        ):
            ids = tokens[valid].tolist()
            assert ids[0] == built.tokenizer.bos_id
            assert ids[-1] == built.tokenizer.eos_id
            assert labels[: len(ids) - 1].tolist() == ids[1:]
            assert bool((labels[len(ids) - 1 :] == IGNORE).all())
            sentences.append(built.tokenizer.decode(ids))
        told.append({*sentences})
    assert not told[0] & told[1]
    assert all(sentence.startswith("a ") for sentence in told[0])


def test_a_cut_sentence_keeps_its_end_token(tmp_path):
    """CLIP-03."""
    built = made(tmp_path, context=6, n_train=50, n_val=10)
    batch: Any = built.train.batch(range(50))
    assert built.facts["cut_captions"] > 0
    lengths = batch["valid"].sum(1)
    assert int(lengths.max()) == 6
    assert bool((batch["tokens"].gather(1, lengths[:, None] - 1) == built.tokenizer.eos_id).all())


def test_files(tmp_path):
    folder = tiny.captions(tmp_path / "some")
    built = made(tmp_path, folder)
    assert (len(built.train), len(built.val)) == (36, 4)
    batch: Any = built.val.batch([0])
    told = built.tokenizer.decode(batch["tokens"][0][batch["valid"][0]].tolist())
    assert told.startswith("Note ")
    lines = (folder / "captions.jsonl").read_text().splitlines()
    assert sum(told in line for line in lines) == 1
    (folder / "captions.jsonl").write_text('{"image": "00.png"}\n')
    with pytest.raises(RequestError, match=r"captions\.jsonl, line 1: .* no 'text' is there"):
        made(tmp_path, folder)
    (folder / "captions.jsonl").write_text('{"image": "none.png", "text": "a"}\n')
    with pytest.raises(RequestError, match=r"none\.png: no picture: No such file"):
        made(tmp_path, folder)
    with pytest.raises(RequestError, match=r"expected a folder with captions\.jsonl"):
        made(tmp_path, tmp_path / "nowhere")
