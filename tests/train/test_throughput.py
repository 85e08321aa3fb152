"""Model FLOPs by formula against torch's own counter, and the CPU's measured peak."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.train.tiny_run import CONTEXT, decoder, rows_of
from txlab.nn.attention import GQA
from txlab.nn.backend import backend
from txlab.train.throughput import MEASURED, flops_per_token, keys_seen, peak_flops

FIELDS = [{}, {"tie_embeddings": False}, {"attn": GQA.Config(n_kv_heads=1)}]


@pytest.mark.parametrize("fields", FIELDS)
def test_formula_equals_torchs_counter(fields):
    """Not halved for causality: the `math` backend computes full products."""
    model = decoder(backend=backend.option("math").config(), **fields)
    batch = rows_of(0)
    with FlopCounterMode(display=False) as counter:
        model.logits(model(batch["tokens"]).states).sum().backward()
    expected = flops_per_token(model, CONTEXT, causal=False) * batch["tokens"].numel()
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-9)


def test_keys_seen_by_counting():
    for context, window in [(8, 8), (64, 64), (64, 16), (64, 1)]:
        exact = sum(min(t + 1, window) for t in range(context)) / context
        assert keys_seen(context, window) == pytest.approx(exact, abs=0.51)


def test_a_cpus_peak_is_the_best_that_was_seen():
    cpu = torch.device("cpu")
    rate = peak_flops(cpu, "32-true")
    assert 1e8 < rate < 1e14
    assert peak_flops(cpu, "32-true") == rate
    MEASURED[torch.float32, torch.get_num_threads()] = 1.0
    assert peak_flops(cpu, "32-true", again=True) > 1e6
    MEASURED[torch.float32, torch.get_num_threads()] = 1e30
    assert peak_flops(cpu, "32-true", again=True) == 1e30
    MEASURED.clear()
