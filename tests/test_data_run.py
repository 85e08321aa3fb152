"""Runs on mixtures, packed and grouped rows: validation by source, resume, two ranks, epochs."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import txlab
from txlab.commands.evaluate import main as evaluate
from txlab.core.errors import RequestError
from txlab.run import train
from txlab.train.callbacks.log import read_rows

TINY = [
    *("model.dim=16", "model.n_layers=1", "model.n_heads=2", "model.context=32"),
    *("tokenizer.vocab_size=300", "data.batch_size=4", "trainer=cpu", "train.sample=null"),
    *("train.steps=6", "train.log_every=2", "data.val_fraction=0.2", "data.cache_dir=cache"),
]


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("plum", "fig"):
        (tmp_path / word).mkdir()
        for i in range(24):
            (tmp_path / word / f"{i}.txt").write_text(f"{word} {i} is ripe. " * (2 + i % 5))


def go(*words: str):
    return train(txlab.compose([*TINY, *words]))


def weights(run: str, step: int) -> dict[str, torch.Tensor]:
    return load_file(f"{run}/checkpoints/step-{step:06d}/weights.safetensors")


MIX = "data.mix=[{path: plum, weight: 3}, {path: fig, name: figs}]"


def test_each_source_is_validated_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    result = go(MIX, "run_dir=run", "data.packing=best_fit", "train.val_every=3")
    row = read_rows(Path("run/metrics.csv"))[-1]
    assert result["metrics"] == {n: row[f"val/{n}"] for n in ("loss/plum", "loss/figs")}
    sources = result["data"]["sources"]
    counts = [sources[name]["val_supervised"] for name in ("plum", "figs")]
    both = row["val/loss/plum"] * counts[0] + row["val/loss/figs"] * counts[1]
    assert row["val/loss"] == pytest.approx(both / sum(counts))
    assert row["val/loss/plum"] != row["val/loss/figs"]
    capsys.readouterr()
    assert evaluate(["ckpt=run"]) == 0
    said = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(said["val/loss/figs"]) == pytest.approx(row["val/loss/figs"], abs=1e-3)


WAYS = {
    "mix": [MIX],
    "best_fit": ["data.path=plum", "data.packing=best_fit"],
    "tokens": ["data.path=plum", "data.packing=none", "data.batch_tokens=96"],
    "micro": [
        *("data.path=plum", "data.packing=none", "data.batch_tokens=96"),
        "data.micro_batch_tokens=40",
    ],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_run_goes_on_with_the_same_rows(way: str) -> None:
    words = [*WAYS[way], "run_dir=run", "train.save_every=2", "train.keep_last=9"]
    go(*words)
    whole = weights("run", 6)
    for step in (4, 6):
        shutil.rmtree(f"run/checkpoints/step-{step:06d}")
    go(*words, "resume=auto")
    assert all(torch.equal(tensor, whole[name]) for name, tensor in weights("run", 6).items())


def test_micro_batches_of_tokens_change_nothing() -> None:
    one, two = (go(*WAYS[way], f"run_dir={way}") for way in ("tokens", "micro"))
    assert one["train/loss"] == pytest.approx(two["train/loss"], abs=1e-5)
    assert one["supervised"] == two["supervised"]
    assert one["tokens"] == two["tokens"]


def test_an_epoch_by_tokens_has_every_target_once() -> None:  # GA-04: the plan is what is done
    result = go(*WAYS["tokens"], "run_dir=run", "train.steps=null", "train.epochs=2")
    assert result["supervised"] == 2 * result["data"]["train_supervised"]
    assert result["step"] == result["updates"]
    assert json.loads(Path("run/summary.json").read_text())["step"] == result["step"]


def test_a_step_of_more_micro_batches_than_an_epoch_has_goes_on_into_the_next_epoch() -> None:
    """GA-04: 3 micro-batches an epoch, 4 a step, 4 epochs: 3 whole steps, planned and made."""
    words = ["data.path=plum", "data.packing=none", "data.val_fraction=0.25", "train.log_every=1"]
    words += ["data.batch_size=20", "train.steps=null", "train.epochs=4"]
    split, whole = (
        go(*words, f"data.micro_batch_size={size}", f"run_dir=of-{size}") for size in (5, 20)
    )
    from txlab.run import prepare_data

    assert len(prepare_data(txlab.compose([*TINY, *words])).train) == 3 * 5
    for result in (split, whole):
        assert (result["step"], result["updates"]) == (3, 3)
        assert result["supervised"] == 4 * result["data"]["train_supervised"]
    one, other = (read_rows(Path(f"of-{size}/metrics.csv")) for size in (5, 20))
    for key in ("train/loss", "grad_norm"):
        assert [row[key] for row in one] == pytest.approx([row[key] for row in other], rel=1e-5)


def test_an_epoch_ends_and_the_next_has_another_order() -> None:  # CKPT-09
    words = ["data.path=plum", "data.packing=best_fit"]
    made = txlab.compose([*TINY, *words])
    from txlab.run import prepare_data

    n = len(prepare_data(made).train)
    words += [f"data.batch_size={n}", "run_dir=run"]
    assert go(*words, "train.steps=1")["step"] == 1
    before = weights("run", 1)
    assert go(*words, "train.steps=1", "resume=auto")["step"] == 1
    assert all(torch.equal(before[name], tensor) for name, tensor in weights("run", 1).items())
    result = go(*words, "train.steps=2", "resume=auto")
    assert (result["step"], result["supervised"]) == (2, 2 * result["data"]["train_supervised"])
    batches = prepare_data(txlab.compose([*TINY, *words])).step_batches()
    first, second = (batches.indices(step)[0] for step in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second) == list(range(n))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["mix", "micro"])
def test_two_ranks_equal_one(way: str) -> None:
    one = go(*WAYS[way], "run_dir=one")
    two = go(*WAYS[way], "run_dir=two", "trainer=ddp", "trainer.devices=2")
    assert two["supervised"] == one["supervised"]
    for key in ("train/loss", "val/loss"):
        assert two[key] == pytest.approx(one[key], abs=1e-5)
    for name, value in one["metrics"].items():
        assert two["metrics"][name] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("images", "reads tokens and labels; the batches of data=images have pixels, labels"),
        ("captions", "does not read pixels; the batches of data=captions have pixels"),
        ("mlm", "for labels that are next tokens; those of data=mlm are hidden"),
    ],
)
def test_an_objective_of_other_batches_is_refused(option, said, tmp_path):
    words = ["+recipe=pretrain", "debug=fast", f"data={option}", f"run_dir={tmp_path / 'run'}"]
    with pytest.raises(RequestError, match=said):
        train(txlab.compose(words), "refused")
    assert not (tmp_path / "run" / "config.yaml").exists()
