"""8-bit AdamW: near AdamW, small in memory, refused in a line where its library is missing."""

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.testing import tiny
from txlab.testing.contracts.optim import learn
from txlab.train.memory import optimizer_bytes, without_numbers
from txlab.train.optim import AdamW, AdamW8bit, adamw_8bit


def test_is_near_adamw_with_two_bytes_a_number():
    """Moments of one byte each and two scales in a block of 256; 30 updates end alike."""
    pytest.importorskip("bitsandbytes", reason="txlab[optim] is not installed")
    exact, small = tiny.model(start=True), tiny.model(start=True)
    losses = learn(exact, AdamW(AdamW.Config()).make(exact), 30)
    optimizer = AdamW8bit(AdamW8bit.Config(min_size=256)).make(small)
    found = learn(small, optimizer, 30)
    assert found != losses
    assert found == pytest.approx(losses, rel=0.02)
    state = optimizer.state[small.embed.weight]
    assert state["state1"].dtype == state["state2"].dtype == torch.uint8


def test_cost_tells_its_bytes():
    pytest.importorskip("bitsandbytes", reason="txlab[optim] is not installed")
    made = AdamW8bit(AdamW8bit.Config(min_size=256)).make
    with without_numbers():
        model = torch.nn.Linear(1024, 256, bias=False)
        found = optimizer_bytes(model, made)
    assert 2 * model.weight.numel() <= found < 2.1 * model.weight.numel()


def test_without_its_library_it_is_refused(monkeypatch):
    monkeypatch.setattr(adamw_8bit, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"needs bitsandbytes: pip install 'txlab\[optim\]'"):
        AdamW8bit(AdamW8bit.Config()).make(tiny.model())


def test_impossible_fields_are_refused():
    with pytest.raises(RequestError, match="min_size"):
        AdamW8bit.Config(min_size=0)
