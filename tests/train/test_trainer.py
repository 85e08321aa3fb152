"""Callbacks from a config: built by name, checked by kind, other people's as well."""

import pytest

from txlab.core.errors import RequestError
from txlab.train.trainer import make_callbacks

OURS = "txlab.train.callbacks."


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": {"project": "p"}}, r"callbacks\.x has no _target_"),
        ({"x": {"_target_": "no.such.Thing"}}, r"callbacks\.x\._target_=no\.such\.Thing cannot"),
        (
            {"x": {"_target_": "lightning.pytorch.callbacks.EarlyStopping", "wrong": 1}},
            r"callbacks\.x: EarlyStopping refuses its arguments: .*wrong",
        ),
        (
            {"x": {"_target_": "os.getcwd"}},
            r"callbacks\.x\._target_=os\.getcwd gives str: expected a C",
        ),
        ({"x": {"_target_": "os.sep"}}, r"callbacks\.x\._target_=os\.sep is no class to build"),
        (
            {"norms": {"_target_": OURS + "norms.Norms", "every": "a"}},
            r"norms\.every=a: expected a whole n",
        ),
        (
            {"norms": {"_target_": OURS + "norms.Norms", "every": 2.5}},
            r"every=2\.5: expected a whole n",
        ),
        (
            {"norms": {"_target_": OURS + "norms.Norms", "every": True}},
            r"every=True: expected a whole n",
        ),
        (
            {"norms": {"_target_": OURS + "norms.Norms", "activations": 3}},
            "=3: expected true or false",
        ),
        (
            {"spikes": {"_target_": OURS + "spikes.Spikes", "deviations": "a"}},
            "=a: expected a number",
        ),
        ({"x": {"_target_": OURS + "metrics.Metrics", "metrics": 3}}, "=3: expected keys below it"),
    ],
)
def test_wrong_entries_are_refused_by_name(given, message, tmp_path):
    with pytest.raises(RequestError, match=message):
        make_callbacks(given, tmp_path)


def test_early_stopping_ends_a_run_with_one_last_validation(run, tmp_path):
    (stopping,) = make_callbacks(
        {
            "stop": {
                "_target_": "lightning.pytorch.callbacks.EarlyStopping",
                "monitor": "val/loss",
                "min_delta": 100.0,
                "patience": 1,
            }
        },
        tmp_path,
    )
    done = run(20, val_every=3, callbacks=(stopping,))
    assert [row["step"] for row in done.log.rows if "val/loss" in row] == [3, 6]
    assert done.checkpoints.saved_step == 6
