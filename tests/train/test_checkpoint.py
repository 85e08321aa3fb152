"""Checkpoint folders: whole or not there, strict, and nothing in them is executed."""

import contextlib
import json
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.train.tiny_run import decoder, unsealed
from txlab.core.errors import RequestError, RunError
from txlab.train import checkpoint
from txlab.train.checkpoint import writing
from txlab.train.weights import load_tensors, named_tensors


def save(folder, step, *, model=None, state=None, keep=None, score=None):
    return checkpoint.save(
        folder,
        step,
        tensors=named_tensors(model or nn.Linear(2, 2)),
        state=state or {"step": step},
        config="seed: 0\n",
        save_tokenizer=lambda file: file.write_text("{}"),
        keep=keep or checkpoint.Keep(last=2),
        score=score,
    )


def test_layout_and_order(tmp_path):
    made = save(tmp_path, 100)
    assert made.path.name == "step-000100"
    assert sorted(p.name for p in made.path.iterdir()) == [
        "COMPLETE",
        "config.yaml",
        "state.pt",
        "tokenizer.json",
        "weights.safetensors",
    ]
    sizes = json.loads((made.path / "COMPLETE").read_text())["bytes"]
    assert all((made.path / name).stat().st_size == size for name, size in sizes.items())


def test_only_the_last_are_kept_and_the_newest_is_found(tmp_path):
    for step in (1, 2, 9, 10):
        save(tmp_path, step)
    assert [c.step for c in checkpoint.complete(tmp_path)] == [9, 10]
    assert checkpoint.find(tmp_path).step == 10


def test_unfinished_folders_are_never_picked_and_cleared(tmp_path):
    """CKPT-03"""
    save(tmp_path, 1)
    (tmp_path / "step-000002").mkdir()
    (tmp_path / ".tmp-step-000003-77").mkdir()
    (tmp_path / ".tmp-step-000003-77" / "state.pt").write_bytes(b"x")
    assert checkpoint.find(tmp_path).step == 1
    checkpoint.clear_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000001"]


@pytest.mark.parametrize("where", ["save_file", "torch.save", "rename"])
def test_a_failing_disk_leaves_the_old_checkpoint_and_nothing_else(tmp_path, monkeypatch, where):
    """CKPT-03: whichever write fails."""
    save(tmp_path, 1)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    owner = {"save_file": writing, "torch.save": torch, "rename": Path}[where]
    monkeypatch.setattr(owner, where.split(".")[-1], full)
    with pytest.raises(RunError, match=r"No space left on device.*step-000001.*resume=auto"):
        save(tmp_path, 2)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_disk_that_really_fills_up(tmp_path):
    """The system itself refuses the write: a limit on file size, in a process of its own."""
    save(tmp_path, 1)
    code = (
        "import resource, sys; from pathlib import Path; import torch;"
        "from txlab.train import checkpoint; from txlab.core.errors import RunError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: checkpoint.save(Path(sys.argv[1]), 2, tensors={'w': torch.zeros(9)},"
        " state={'w': torch.zeros(99999)}, config='', save_tokenizer=None)\n"
        "except RunError as error: print(error); sys.exit(1)"
    )
    root = Path(checkpoint.__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "saving" in done.stdout
    assert "step-000001" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["step-000001"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


def test_nothing_in_a_file_is_executed(tmp_path):
    """CKPT-04: a pickle that would create a file."""
    made = save(tmp_path, 1)
    unsealed(made.path)
    marker = tmp_path / "marker"
    for write in (
        lambda file: torch.save(Bomb(marker), file),
        lambda file: file.write_bytes(pickle.dumps(Bomb(marker))),
    ):
        write(made.path / "state.pt")
        with pytest.raises(RequestError, match=r"state\.pt cannot be read .*damaged or not ours"):
            made.state()
        assert not marker.exists()


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("damage", [b"", b"garbage", None])
@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt"])
def test_a_damaged_file_is_one_line(tmp_path, name, damage, sealed):
    made = save(tmp_path, 1)
    if not sealed:
        unsealed(made.path)
    file = made.path / name
    file.write_bytes(file.read_bytes()[:-20] if damage is None else damage)
    with pytest.raises(RequestError, match=name) as caught:
        made.weights() if name.startswith("weights") else made.state()
    assert "\n" not in str(caught.value)


def test_whatever_byte_is_hit_only_one_line_is_said(tmp_path):
    made = save(tmp_path, 1, state={"a": [1, (2.0, "x")], "b": torch.arange(9)})
    unsealed(made.path)
    file = made.path / "state.pt"
    whole, draw = file.read_bytes(), random.Random(0)
    for _ in range(150):
        raw = bytearray(whole)
        for _ in range(draw.choice((1, 20))):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        file.write_bytes(raw)
        with contextlib.suppress(RequestError):  # what is hit may be padding
            made.state()


@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt", "config.yaml"])
def test_a_flipped_bit_is_noticed(tmp_path, name):
    """Of the same size, and readable: only the sum tells. One without sums is read as it is."""
    made = save(tmp_path, 1, model=decoder())
    read = {"weights.safetensors": made.weights, "state.pt": made.state}.get(name, made.config)
    file = made.path / name
    raw = bytearray(file.read_bytes())
    raw[raw.index(b"e") if name == "config.yaml" else -40] ^= 1
    file.write_bytes(raw)
    with pytest.raises(RequestError, match=rf"{name} cannot be read \(its bits are not those"):
        read()
    unsealed(made.path)
    if name != "state.pt":  # which has sums of its own
        read()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "holds no complete checkpoint"),
        (["weights.safetensors"], "unfinished or foreign checkpoint: it has no file COMPLETE"),
    ],
)
def test_foreign_folders_are_refused(tmp_path, names, message):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(RequestError, match=message):
        checkpoint.find(tmp_path)
    with pytest.raises(RequestError, match="there is no such folder"):
        checkpoint.find(tmp_path / "nowhere")


def test_all_differences_are_listed_at_once():
    """CKPT-07: one renamed, one missing, one extra, one of the wrong shape."""
    model = decoder()
    tensors = {name: t.detach().clone() for name, t in named_tensors(model).items()}
    tensors["final.weight"] = torch.zeros(33)
    tensors["blocks.0.ffn.up.weight"] = tensors.pop("layers.0.ffn.up.weight")[:, :5]
    tensors["layers.1.attn.q.weight"] = torch.zeros(3, 3)
    gate = tensors.pop("layers.0.ffn.gate.weight")
    gone = [name for name in ("norm.weight",) if tensors.pop(name, None) is not None]
    tensors["norm.gain"] = torch.zeros(16)
    before = {name: t.detach().clone() for name, t in named_tensors(model).items()}
    with pytest.raises(RequestError) as caught:
        load_tensors(model, tensors, "FILE")
    text = str(caught.value)
    assert "FILE does not fit this model" in text
    assert "renamed: norm.weight (in the file as norm.gain)" in text
    assert "missing: layers.0.ffn" in text
    assert "extra: " in text
    assert "final.weight" in text
    assert "wrong shape: layers.1.attn.q.weight [3, 3] (the model has [16, 16])" in text
    assert gate.shape[1] == 16
    assert gone
    assert all(torch.equal(t, before[name]) for name, t in named_tensors(model).items())


@pytest.mark.parametrize("tied", [True, False])
def test_tied_weights_are_saved_once_and_stay_tied(tmp_path, tied):
    """TIE-01"""
    model, other = decoder(tie_embeddings=tied), decoder(tie_embeddings=tied)
    made = save(tmp_path, 1, model=model)
    assert ("head.weight" in made.weights()) is not tied
    load_tensors(other, made.weights(), "FILE")
    assert (other.head.weight is other.embed.weight) is tied
    tokens = torch.arange(6)[None]
    assert torch.equal(model.logits(model(tokens).states), other.logits(other(tokens).states))
    with pytest.raises(RequestError, match=r"extra: head\.weight" if not tied else "missing: head"):
        load_tensors(decoder(tie_embeddings=not tied), made.weights(), "FILE")


def save_for_ever(folder):
    """What a child process does until it is killed."""
    step = checkpoint.find(folder).step
    while True:
        step += 1
        state = {"step": step, "filling": torch.full((2000,), float(step))}
        checkpoint.save(
            folder,
            step,
            tensors={"weight": torch.full((500,), float(step))},
            state=state,
            config="",
            save_tokenizer=None,
        )


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_while_saving_the_newest_complete_one_loads(tmp_path):
    """CKPT-03: SIGKILL at 50 random moments of saving; nothing piles up."""
    save(tmp_path, 0)
    moments = random.Random(0)
    for _ in range(50):
        child = os.fork()
        if child == 0:
            try:
                save_for_ever(tmp_path)
            finally:
                os._exit(1)
        time.sleep(moments.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        newest = checkpoint.find(tmp_path)
        if newest.step:
            assert newest.state()["step"] == newest.step
            assert newest.weights()["weight"][-1] == newest.step
        checkpoint.clear_leftovers(tmp_path)
        assert all(path.name.startswith("step-") for path in tmp_path.iterdir())
    save(tmp_path, newest.step + 1)
    assert len(list(tmp_path.iterdir())) == 2
