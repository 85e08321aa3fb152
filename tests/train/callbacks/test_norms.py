"""Norms by layer: those of the tensors themselves, at the steps asked for."""

import pytest
import torch

from tests.train.tiny_run import CONTEXT, decoder, rows_of, split
from txlab.core.errors import RequestError
from txlab.nn.mask import Mask
from txlab.train.callbacks.norms import Norms, largest, layer_of, watched


def test_columns_come_every_so_many_steps(run):
    done = run(4, callbacks=(Norms(2),), log_every=1, val=0)
    have = [row["step"] for row in done.log.rows if "grad_norm/layers.0" in row]
    assert have == [2, 4]
    layers = {"embed", "layers.0", "layers.1", "norm"}
    for what in ("grad_norm", "weight_norm"):
        found = {k.split("/")[1] for k in done.log.rows[1] if k.startswith(f"{what}/")}
        assert found == layers
    for what in ("act_rms", "act_max", "logit_max"):
        found = {k.split("/")[1] for k in done.log.rows[1] if k.startswith(f"{what}/")}
        assert found == {"layers.0", "layers.1"}


def test_the_layers_make_up_the_whole_gradient_before_clipping(run):
    done = run(1, callbacks=(Norms(1),), clip=1e-3, make=lambda s: split(rows_of(s), 1, 3), val=0)
    row = done.log.rows[0]
    parts = [v for k, v in row.items() if k.startswith("grad_norm/")]
    assert sum(v * v for v in parts) ** 0.5 == pytest.approx(row["grad_norm"], rel=1e-5)


def test_weight_norms_are_of_the_weights(run):
    done = run(1, callbacks=(Norms(1),), val=0, optim=None)
    row, start = done.log.rows[0], dict(decoder().named_parameters())
    assert row["weight_norm/norm"] == pytest.approx(float(start["norm.weight"].detach().norm()))


def test_activations_by_hand():
    torch.manual_seed(0)
    model, batch = decoder(), rows_of(0)
    outputs = []
    model.layers[0].register_forward_hook(lambda m, a, out: outputs.append(out[0]))
    with torch.no_grad(), watched(model) as seen:
        model(batch["tokens"])
    assert float(seen["act_rms/layers.0"]) == pytest.approx(
        float(outputs[0].square().mean().sqrt())
    )
    assert float(seen["act_max/layers.0"]) == pytest.approx(float(outputs[0].abs().max()))
    assert "attend" not in vars(model.layers[0].attn)  # all is as it was


def test_the_largest_score_is_among_those_seen(monkeypatch):
    monkeypatch.setattr("txlab.train.callbacks.norms.QUERIES", 3)
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, CONTEXT, 5), torch.randn(2, 2, CONTEXT, 5)
    q[:, :, 0] *= 10  # the first query sees one key of all
    scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2) * 0.7
    seen = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
    expected = scores.masked_fill(~seen, -torch.inf).max()
    assert float(largest(q, k, Mask(CONTEXT, CONTEXT), 0.7)) == pytest.approx(float(expected))
    assert float(expected) < float(scores.max())


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("layers.3.attn.q.weight", "layers.3"),
        ("encoder.layers.11.ffn.up.weight", "encoder.layers.11"),
        ("embed.weight", "embed"),
    ],
)
def test_names_of_layers(name, layer):
    assert layer_of(name) == layer


def test_what_it_refuses():
    with pytest.raises(RequestError, match="every=0"):
        Norms(0)
