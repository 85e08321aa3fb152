"""Every preset of callbacks/: found by its name, and without effect on the weights."""

import inspect
from pathlib import Path

import pytest
import torch
from hydra.utils import get_class

import txlab
from tests.train.tiny_run import Run
from txlab.train.trainer import make_callbacks

FOLDER = Path(__file__).parents[3] / "conf" / "callbacks"
PRESETS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
CHANGES = {"ema": "is a key of train.*: what is evaluated changes, see tests/train/test_averaging"}
FIELDS = {"norms": {"every": 1}, "profiler": {"skip": 1, "steps": 2}}


def made(name: str, folder: Path) -> dict:
    config = txlab.compose([f"callbacks={name}"])
    assert config.callbacks is not None
    return {key: entry | FIELDS.get(key, {}) for key, entry in config.callbacks.items()}


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Run:
    return Run(tmp_path_factory.mktemp("plain"), 5, dropout=0.1, val_every=2).fit()


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in CHANGES])
def test_a_run_is_bit_for_bit_the_same_with_it(name, tmp_path, plain):
    watching = make_callbacks(made(name, tmp_path), tmp_path)
    assert watching
    done = Run(tmp_path, 5, dropout=0.1, val_every=2, callbacks=tuple(watching)).fit()
    assert all(torch.equal(done.weights()[k], v) for k, v in plain.weights().items())
    for column in ("train/loss", "val/loss", "grad_norm"):
        assert done.log.column(column) == plain.log.column(column)


def test_several_at_once():
    config = txlab.compose(["callbacks=[norms,memory,ema]", "callbacks.norms.every=7"])
    assert config.callbacks is not None
    assert set(config.callbacks) == {"norms", "memory"}
    assert config.callbacks["norms"]["every"] == 7
    assert config.train.ema == 0.999


def test_profile_is_a_way_to_debug():
    config = txlab.compose(["debug=profile", "model.dim=64"])
    assert config.callbacks is not None
    assert set(config.callbacks) == {"profiler"}
    assert config.train.steps == 8
    assert config.model.dim == 64


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in CHANGES])
def test_a_preset_has_every_field_so_that_each_is_set_by_its_name(name):
    """`callbacks.spikes.window=50`, as docs/callbacks.md says, without a `+`."""
    config = txlab.compose([f"callbacks={name}"])
    assert config.callbacks is not None
    entry = config.callbacks[name]
    fields = inspect.signature(get_class(entry["_target_"])).parameters.values()
    told = {field.name: field.default for field in fields if field.name != "run_dir"}
    assert set(entry) - {"_target_"} == set(told)
    for key, default in told.items():
        assert default in (entry[key], inspect.Parameter.empty)
