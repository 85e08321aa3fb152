"""`show` tells all about an option, and what a run would be."""

import re
from typing import Any

import pytest

from txlab.commands.show import main
from txlab.core.errors import RequestError
from txlab.core.hydra import compose, from_yaml


@pytest.mark.parametrize("form", ["model.attn=gqa", "model/attn=gqa"])
def test_an_option(form: str, capsys: Any):
    main([form])
    shown = capsys.readouterr().out
    assert shown.startswith("model.attn=gqa: Grouped-query attention")
    assert "paper:  Ainslie et al. 2023\n" in shown
    assert "origin: txlab/nn/attention/heads.py:" in shown
    assert "from:   txlab 0.1.0\n" in shown
    assert "  model.attn.n_kv_heads=null  (int | None)\n      Key/value heads; None: " in shown
    assert "model.attn.name" not in shown


def test_an_option_without_fields(capsys: Any):
    main(["model.pos=none"])
    assert "fields: none" in capsys.readouterr().out


def test_the_composed_config(capsys: Any):
    words = ["+recipe=pretrain", "model.attn=mqa", "train.tokens=1M"]
    main(["config", *words])
    assert from_yaml(capsys.readouterr().out) == compose(words)


def test_the_schedule(capsys: Any):
    main(["schedule", "train.steps=100", "schedule.warmup=10", "optim.lr=1.0"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [rows[0][0], rows[-1][0]] == ["0", "99"]
    assert float(rows[0][2]) == pytest.approx(0.1)
    assert max(float(row[2]) for row in rows) <= 1.0


def test_the_initialisation(capsys: Any):
    sizes = ["model.dim=64", "model.n_layers=3", "tokenizer.vocab_size=300"]
    main(["init", "+recipe=pretrain", "model.init=mup", "model.init.base_dim=32", *sizes])
    rows = [re.split(r"\s{2,}|(?<=\]) ", line) for line in capsys.readouterr().out.splitlines()]
    found = {row[0]: row[1:] for row in rows}
    assert found["embed.weight"] == ["[300, 64]", "N(0, 0.02)"]
    assert found["layers.0-2.attn.q.weight"][1] == "N(0, 0.01414)"
    assert found["layers.0-2.attn.o.weight"][1] == "N(0, 0.005774)"
    assert found["layers.0-2.residual.norms.ffn.weight"] == ["[64]", "as made"]
    assert rows[-1] == ["the last states are multiplied by 0.5 before the head"]
    main(["init", "+recipe=pretrain", "model.init=llama", *sizes])
    shown = capsys.readouterr().out
    assert "layers.2.attn.o.weight" in shown
    assert "layers.0-2.attn.q.weight" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "show : expected SLOT=NAME"),
        (["model.attn"], "show model.attn: expected SLOT=NAME"),
        (["model.attn=gqx"], "Did you mean gqa"),
        (["model.atn=gqa"], "Did you mean model.attn"),
        (["schedule"], "needs train.steps"),
    ],
)
def test_bad_words(words: list[str], said: str):
    with pytest.raises(RequestError, match=said):
        main(words)
