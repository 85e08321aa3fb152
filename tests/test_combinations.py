"""Options together: every three of them build, learn and decode on the cache, or two are refused
at build by a message that names both.

`python -m pytest tests/test_combinations.py -m slow` tries every combination there is.
"""

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from tests.covering import Part, covering
from txlab.core.errors import RequestError
from txlab.models import Decoder
from txlab.nn.attention import attention
from txlab.nn.backend import backend
from txlab.nn.ffn import Activation, ffn
from txlab.nn.init import init
from txlab.nn.norm import norm
from txlab.nn.position import position
from txlab.nn.residual import residual
from txlab.testing.tiny import tokens

VOCAB, LENGTH = 50, 8
SLOTS = {
    slot.path.removeprefix("model."): slot
    for slot in (attention, position, norm, ffn, residual, init, backend)
}
TRAINABLE = ("auto", "math", "sdpa", "banded", "flash")
"""Backends that train on a CPU; the others have refusals and tests of their own."""


def entries(name: str) -> list[Any]:
    """Every option's defaults, and the perceptron with each of its activations."""
    names = list(SLOTS[name].options)
    if name == "ffn":
        names.remove("mlp")
        return [*({"name": "mlp", "activation": a.value} for a in Activation), *names]
    return [n for n in names if n in TRAINABLE] if name == "backend" else names


FACTORS: dict[str, list[Any]] = {name: entries(name) for name in SLOTS} | {"tied": [False, True]}
SIZES = [len(values) for values in FACTORS.values()]


def config_of(chosen: dict[str, Any]) -> Decoder.Config:
    """A small decoder of the chosen options, each an entry of its slot."""
    parts = {name: SLOTS[name].config(entry) for name, entry in chosen.items() if name in SLOTS}
    return Decoder.Config(
        dim=32,
        n_layers=2,
        n_heads=4,
        context=16,
        vocab_size=VOCAB,
        tie_embeddings=chosen.get("tied", True),
        **parts,
    )


@cache
def refused() -> dict[Part, str]:
    """Pairs of options that a build refuses, with what it says; all else stands at its default."""
    found: dict[Part, str] = {}
    for (i, one), (j, two) in itertools.combinations(enumerate(SLOTS), 2):
        for a, b in itertools.product(range(SIZES[i]), range(SIZES[j])):
            config = config_of({one: FACTORS[one][a], two: FACTORS[two][b]})
            try:
                with torch.device("meta"):
                    Decoder(config, config.dims())
            except RequestError as error:
                found[(i, a), (j, b)] = str(error)
    return found


def test_a_refusal_names_both_options_and_the_way_out() -> None:
    for pair, said in refused().items():
        for i, value in pair:
            name, entry = list(FACTORS.items())[i][0], list(FACTORS.values())[i][value]
            option = entry["name"] if isinstance(entry, dict) else entry
            assert f"model.{name}={option}" in said, said
        assert any(word in said for word in ("use ", "choose ", "leave ")), said


@cache
def cases(strength: int) -> list[tuple[int, ...]]:
    return covering(SIZES, strength, refused())


@pytest.mark.parametrize("pos", range(SIZES[1]), ids=FACTORS["pos"])
@pytest.mark.parametrize("attn", range(SIZES[0]), ids=FACTORS["attn"])
def test_every_three_options_train_and_decode_together(attn: int, pos: int) -> None:
    mine = [case for case in cases(3) if case[:2] == (attn, pos)]
    assert mine or ((0, attn), (1, pos)) in refused()
    learn_all(iter(mine))


@pytest.mark.slow
@pytest.mark.parametrize("pos", range(SIZES[1]), ids=FACTORS["pos"])
@pytest.mark.parametrize("attn", range(SIZES[0]), ids=FACTORS["attn"])
def test_every_combination_trains_and_decodes(attn: int, pos: int) -> None:
    everything = itertools.product((attn,), (pos,), *(range(n) for n in SIZES[2:]))
    learn_all(
        case
        for case in everything
        if not any(pair in refused() for pair in itertools.combinations(enumerate(case), 2))
    )


def learn_all(chosen: Iterator[tuple[int, ...]]) -> None:
    for case in chosen:
        named = {name: FACTORS[name][i] for name, i in zip(FACTORS, case, strict=True)}
        try:
            learns(config_of(named))
        except (AssertionError, RequestError) as error:
            raise AssertionError(f"{named}: {error}") from error


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
