"""The coordinate check: flat under maximal update parametrisation, and only with all of its rules.

Bounds: over widths 64 to 256 the slopes of single seeds scatter by about 0.1 around 0, and a rule
left out moves one by 0.4 or more (0.5 is what theory asks for most of them), so 0.15 of the mean of
three parts them.
"""

import pytest

import txlab
from txlab.core.errors import RequestError
from txlab.nn.init import GPT2Init, MuPInit
from txlab.train.coordinates import Arguments, compared, coordinates, slope
from txlab.train.optim import AdamW
from txlab.train.optim.groups import Width

FLAT = 0.15
NARROW = [64, 128, 256]
RATES = {
    "lion": "optim.lr=1e-3",
    "schedule_free": "optim.lr=2e-3",
    "adafactor": "optim.lr=0.1",
    "muon": "optim.lr=1e-2",
    "sgd": "optim.lr=0.03",
}


def composed(base, *words):
    sizes = f"model.dim={base} model.n_heads={base // 16} model.n_layers=2 model.context=32"
    mup = f"model.init=mup model.init.base_dim={base} optim.scale=mup"
    return txlab.compose([*sizes.split(), *mup.split(), *words])


def slopes(config, widths, seeds=3):
    found = coordinates(config, widths, steps=4, seeds=seeds)
    assert list(found) == ["layers.0", "layers.1", "logits"]
    return {name: slope(widths, values) for name, values in found.items()}


def test_flat_under_mup_and_growing_without_it():
    ours, standard = compared(composed(64, "optim.lr=1e-3")).values()
    found = slopes(ours, NARROW)
    assert all(abs(power) < FLAT for power in found.values()), found
    assert all(power > 0.5 for power in slopes(standard, NARROW).values())


@pytest.mark.parametrize("rule", ["rates", "logits", "start"])
def test_every_rule_is_needed(monkeypatch, rule):
    """Left out one by one: by 1 / width, the rates of matrices, the logits, the variances."""
    if rule == "rates":
        monkeypatch.setattr(AdamW, "width", Width(hidden=0, rest=0))
    elif rule == "logits":
        monkeypatch.setattr(MuPInit, "logit_scale", 1.0)
    else:
        monkeypatch.setattr(MuPInit, "distribution", GPT2Init.distribution)
        monkeypatch.setattr(MuPInit, "position_std", 0.01, raising=False)
    words = ("optim.lr=1e-3",) if rule != "start" else ("optim.lr=1e-4", "model.init.std=0.1")
    found = slopes(composed(64, *words), NARROW)
    assert max(found.values()) > FLAT, found


@pytest.mark.slow
def test_flat_from_128_to_1024():
    """The widths of the published figure."""
    found = slopes(composed(128, "optim.lr=1e-3"), [128, 256, 512, 1024])
    assert all(abs(power) < FLAT for power in found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("name", RATES)
def test_every_optimizer_has_its_rule(name):
    """Flat with it, not without, at rates that move weights by more than their start."""
    words = (f"optim={name}", RATES[name])
    found = slopes(composed(64, *words), NARROW)
    assert all(abs(power) < FLAT for power in found.values()), found
    found = slopes(composed(64, *words, "optim.scale=null"), NARROW)
    assert any(abs(power) > FLAT for power in found.values()), found


def test_slope_is_the_power():
    assert slope([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2)
    assert slope([64, 256], [5.0, 2.5]) == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"widths": "64"}, r"widths=64: expected two or more"),
        ({"widths": "64,wide"}, r"widths=64,wide"),
        ({"steps": 0}, r"steps=0: expected at least 1"),
        ({"seeds": 0}, r"seeds=0"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(RequestError, match=message):
        Arguments(**arguments).sizes()


def test_widths_that_do_not_fit_are_refused():
    with pytest.raises(RequestError, match=r"widths: 72 is no multiple of 16"):
        coordinates(composed(64), [64, 72], steps=1, seeds=1)


def test_a_rate_that_explodes_is_told():
    config = composed(64, "optim=sgd", "optim.lr=1e30", "model.norm=none")
    with pytest.raises(RequestError, match=r"not finite after 3 updates: lower optim\.lr"):
        coordinates(config, [64], steps=3, seeds=1)
