"""samples.txt: a sample for each validation, cut on resume, training's random numbers untouched."""

from types import SimpleNamespace

import torch

from txlab.models.sampling import Sampling
from txlab.train.callbacks import samples
from txlab.train.callbacks.samples import Samples, read_samples

MAIN = SimpleNamespace(is_global_zero=True, strategy=None)


def drawing(model, tokenizer, prompts, sampling):
    number = torch.rand(()).item()
    return [SimpleNamespace(text=f" of {number:.3f}\n\nand more")]


def test_samples_at_validations_only(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "generate_text", drawing)
    callback = Samples(tmp_path, None, "A tale", Sampling())
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for row in ({"step": 1}, {"step": 2, "val/loss": 1.0}, {"step": 4, "val/loss": 1.0}):
        callback.on_row(MAIN, SimpleNamespace(model=None), row)
    assert torch.equal(torch.get_rng_state(), before)
    found = read_samples(tmp_path / "samples.txt")
    assert [step for step, _ in found] == [2, 4]
    assert found[0][1].startswith("A tale of 0.")
    assert found[0][1].endswith("\n\nand more")

    Samples(tmp_path, None, "A tale", Sampling(), resumed_step=3).setup(MAIN, None, "fit")
    assert read_samples(tmp_path / "samples.txt") == found[:1]
