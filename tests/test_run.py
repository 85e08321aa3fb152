"""A whole run: folder, files, summary; and what is refused before anything is written."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import txlab
from txlab.core.errors import RequestError
from txlab.run import total_steps, train
from txlab.train import checkpoint
from txlab.train.callbacks.log import read_rows

ROOT = Path(txlab.__file__).parents[1]
TEXT = "".join(
    f"Line {i}: the {w} fox number {i * 7 % 13} jumps.\n\n" for i in range(60) for w in "abc"
)
TINY = [
    *("model.dim=16", "model.n_layers=1", "model.n_heads=2", "model.context=16"),
    *("tokenizer.vocab_size=300", "data.batch_size=4", "data.micro_batch_size=2", "trainer=cpu"),
    *("train.steps=4", "train.log_every=2", "data.val_fraction=0.2"),
]


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    return [*TINY, "data.path=text.txt", "data.cache_dir=cache"]


def go(words, *more, **kwargs):
    return train(txlab.compose([*words, *more]), **kwargs)


def test_a_run_leaves_all_its_files(words, capsys):
    result = go(words, "run_dir=here", "train.sample=Line 3")
    folder = Path("here")
    # What git has not stored of this very tree may lie there as well.
    names = sorted(p.name for p in folder.iterdir() if p.suffix != ".diff")
    assert names == [
        *("checkpoints", "code.jsonl", "config.yaml", "curves.png", "loss.png", "metrics.csv"),
        *("metrics.jsonl", "samples.txt", "summary.json"),
    ]
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "summary.json").read_text()) == json.loads(json.dumps(result))
    assert "--- step 4\nLine 3" in (folder / "samples.txt").read_text()
    assert result["step"] == result["updates"] == 4
    assert result["tokens"] == 4 * 4 * 16
    assert result["val/perplexity"] == pytest.approx(math.exp(result["val/loss"]))
    assert result["gain"] == pytest.approx(result["unigram_entropy"] - result["val/loss"])
    row = read_rows(folder / "metrics.csv")[-1]
    assert row["val/loss"] == result["val/loss"]
    out = capsys.readouterr().out
    for part in (
        "plan ",
        "4 steps of 4 x 16 = 64 tokens: 0.1",
        "bits per byte",
        "MFU",
        "peak memory",
        "run folder",
    ):
        assert part in out


def test_bits_per_byte_counts_the_bytes_of_the_held_out_text(words):
    result = go(words, "run_dir=here")
    config = txlab.compose([*words])
    from txlab.run import prepare_data

    data = prepare_data(config)
    sizes = data.tokenizer.token_bytes()
    labels = torch.cat([batch["labels"].flatten() for batch in data.val_batches()])
    labels = labels[labels >= 0]
    nats = result["val/loss"] * len(labels)
    expected = nats / math.log(2) / int(sizes[labels].sum())
    assert result["val/bits_per_byte"] == pytest.approx(expected, rel=1e-5)


def test_load_needs_nothing_but_the_folder(words, tmp_path):
    go(words, "run_dir=here", "train.save_every=2")
    moved = tmp_path / "elsewhere"
    Path("here").rename(moved)
    (tmp_path / "text.txt").unlink()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    model = txlab.load(moved)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    assert model.tokenizer.decode(model.tokenizer.encode("Line 3")) == "Line 3"
    old = txlab.load(moved / "checkpoints" / "step-000002")
    tokens = torch.tensor([model.tokenizer.encode("Line 3: the")])
    assert not torch.equal(model(tokens).states, old(tokens).states)
    assert model.head.weight is model.embed.weight


def test_a_model_can_start_from_another_ones_weights(words):
    go(words, "run_dir=first")
    others = [word for word in words if not word.startswith(("tokenizer", "model"))]
    result = go(others, "run_dir=second", "model.init_from=first", "optim.lr=1e-9")
    first = json.loads(Path("first/summary.json").read_text())
    assert result["val/loss"] == pytest.approx(first["val/loss"], rel=1e-4)


def test_four_runs_in_one_second_get_four_folders(words, monkeypatch):
    from txlab.train.folder import open_folder

    monkeypatch.setattr(time, "strftime", lambda form: "same")
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(open_folder(None, None, "paper/gpt2").path))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 4
    assert all(p.parent.name == "runs" and p.name.startswith("paper-gpt2-same-") for p in found)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["model.vocab_size=200"], "model.vocab_size=200 is below the tokenizer's 300 ids"),
        (
            ["model.vocab_size=262", "tokenizer=byte", "tokenizer.control=['<x>', '<y>']"],
            "model.vocab_size=262 is below the tokenizer's 263 ids",
        ),
        (["resume=nowhere"], "nowhere: there is no such folder"),
        (["resume=auto"], "resume=auto needs run_dir"),
        (["run_dir="], r"run_dir= is empty \(a shell variable that is not set\?\)"),
        (["run_dir=new", "resume="], "resume= is empty"),
        (
            ["callbacks=profiler", "train.stop_at=3"],
            "3 steps are left, fewer than skip=3 and steps=5",
        ),
        (
            ["callbacks=metrics", "+callbacks.metrics.metrics.x._target_=torchmetrics.MeanMetric"],
            r"callbacks.metrics: x \(MeanMetric\) cannot read logits",
        ),
        (["train.best=val/los"], "train.best=val/los: the run will have no such figure"),
        (["train.precision=16-mixed"], "needs a GPU"),
        (["+trainer.nonsense=1"], "trainer: Trainer refuses its arguments: .*nonsense"),
        (["run_dir=text.txt/inside"], "cannot be written"),
    ],
)
def test_refused_requests_leave_nothing_behind(words, more, message, tmp_path):
    before = sorted(p for p in tmp_path.iterdir() if p.name != "cache")
    with pytest.raises(RequestError, match=message):
        go(words, *more)
    after = sorted(p for p in tmp_path.iterdir() if p.name != "cache")
    assert [p for p in after if p.name != "runs"] == before
    assert not list(Path("runs").glob("*"))


def test_what_a_callback_of_lightnings_refuses_is_the_request(words):
    name = "lightning.pytorch.callbacks.LearningRateMonitor"
    with pytest.raises(RequestError, match=r"^Lightning: Cannot use `LearningRateMonitor`"):
        go(words, f"+callbacks.mine._target_={name}")


@pytest.mark.parametrize(
    ("length", "steps"),
    [("train.steps=7", 7), ("train.tokens=129", 3), ("train.epochs=2", None), (None, None)],
)
def test_length_of_a_run(words, length, steps):
    from txlab.run import prepare_data

    config = txlab.compose([*(w for w in words if "steps" not in w), *([length] if length else [])])
    data = prepare_data(config)
    if steps is None:
        steps = math.ceil((2 if length else 1) * len(data.train) / 4)
    assert total_steps(config, data) == steps


def test_one_batch_is_learnt_by_heart(words):
    go(words, "run_dir=here", "train.one_batch=true", "train.steps=150", "optim.lr=0.02")
    losses = [row["train/loss"] for row in read_rows(Path("here/metrics.csv"))]
    assert losses[-1] < 0.25 * losses[0]


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_a_stop_signal_saves_and_exits_with_75(words, name):
    code = "import sys; from txlab.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *words, "train.steps=100000", "run_dir=here"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not Path("here/metrics.csv").exists():
        time.sleep(0.02)
    process.send_signal(getattr(signal, name))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    saved = checkpoint.find(Path("here"))
    assert f"stopped by {name} at step {saved.step}, saved; go on with resume=auto" in errors
    assert "Traceback" not in errors
