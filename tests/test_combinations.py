"""Every combination of registered options builds, learns and decodes on its cache."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from txlab.models import Decoder
from txlab.nn.attention import attention
from txlab.nn.ffn import ffn
from txlab.nn.ffn.mlp import Activation
from txlab.nn.init import init
from txlab.nn.norm import norm
from txlab.nn.position import position
from txlab.nn.residual import residual
from txlab.testing.tiny import tokens

VOCAB, LENGTH = 50, 8


def feed_forwards() -> list[Any]:
    """Every option's defaults, and the perceptron with each of its activations."""
    others = [name for name in ffn.options if name != "mlp"]
    return [*({"name": "mlp", "activation": a.value} for a in Activation), *others]


def rest() -> Iterator[tuple[Any, ...]]:
    """Everything but attention and positions, which name the test."""
    return itertools.product(norm.options, feed_forwards(), residual.options, init.options, (0, 1))


@pytest.mark.parametrize("pos", position.options)
@pytest.mark.parametrize("attn", attention.options)
def test_every_combination_trains_and_decodes(attn: str, pos: str) -> None:
    for case in rest():
        config = Decoder.Config(
            dim=32,
            n_layers=2,
            n_heads=4,
            context=16,
            vocab_size=VOCAB,
            tie_embeddings=bool(case[4]),
            attn=attention.config(attn),
            pos=position.config(pos),
            norm=norm.config(case[0]),
            ffn=ffn.config(case[1]),
            residual=residual.config(case[2]),
            init=init.config(case[3]),
        )
        try:
            learns(config)
        except AssertionError as error:
            raise AssertionError(f"attn={attn} pos={pos} {case}: {error}") from error


def learns(config: Decoder.Config) -> None:
    """Two steps move every parameter and stay finite; the cache then gives the same logits."""
    torch.manual_seed(0)
    model = Decoder(config, config.dims())
    # Learned positions are as many as the context; all of them take part.
    rows = tokens(2, config.context + 1, vocab_size=VOCAB)
    rows[0, : config.context] = torch.arange(config.context) % VOCAB
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    for _ in range(2):
        logits = model.logits(model(rows[:, :-1]).states)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        assert loss.isfinite(), "loss is not finite"
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    unmoved = [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    assert not unmoved, f"did not move: {unmoved}"
    model.eval()
    ids, parts = rows[:, :LENGTH], (4, 1, 3)
    with torch.no_grad():
        cache = model.new_cache(2, LENGTH)
        found = torch.cat([model(part, cache=cache).states for part in ids.split(parts, 1)], 1)
        difference = (model.logits(found) - model.logits(model(ids).states)).abs().max()
    assert difference < 1e-4, f"decoding differs by {difference}"
