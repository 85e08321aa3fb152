"""Spikes: told with their rows, by robust deviations, the same after a resume."""

import pytest

from tests.train.tiny_run import Poison
from txlab.core.errors import RequestError
from txlab.objectives.objective import Loss
from txlab.train import checkpoint
from txlab.train.callbacks.spikes import FILE, Spikes, leap, read_spikes


def test_deviations_by_hand():
    before = [1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0, 1.1, 0.9, 1.0]
    # median 1, median absolute deviation 0.1
    assert leap(1.5, before) == pytest.approx(0.5 / (1.4826 * 0.1))
    assert leap(0.5, before) < 0
    assert leap(9.0, before[:9]) == 0  # too few to tell
    assert leap(1.01, [1.0] * 20) == pytest.approx(10.0)  # at least 0.1 % of the median
    # One spike among them widens nothing.
    assert leap(1.5, [*before, 100.0]) > 3


class Loud(Poison):
    """Next-token prediction whose loss is three times as large at one call."""

    def forward(self, model, batch):
        loss = self.inner(model, batch)
        if model.training:
            self.calls += 1
        factor = 3.0 if model.training and self.calls in self.at else 1.0
        return Loss(loss.sum * factor, loss.count, {})


def test_a_spike_is_told_once_with_its_step(run, tmp_path):
    notes = []

    class Notes(Spikes):
        def on_note(self, trainer, module, text):
            notes.append(text)

    first = {"save_every": 12, "keep_last": 9}
    watch = Notes(tmp_path, deviations=8.0)
    done = run(18, callbacks=(watch,), objective=Loud({15}), **first)
    (entry,) = read_spikes(tmp_path / FILE)
    assert entry["step"] == 15
    assert entry["loss"] == pytest.approx(done.log.column("train/loss")[14], rel=1e-5)
    assert len(notes) == 1
    assert "step 15: loss" in notes[0]
    half = checkpoint.Checkpoint(done.folder / "checkpoints" / "step-000012")
    again = Notes(tmp_path, deviations=8.0)
    run(18, callbacks=(again,), objective=Loud({3}), resume=half, **first)
    assert again.losses == watch.losses
    assert read_spikes(tmp_path / FILE) == [entry]  # that of the first time is cut


def test_what_it_refuses(tmp_path):
    with pytest.raises(RequestError, match="window=3 at least 10"):
        Spikes(tmp_path, window=3)
