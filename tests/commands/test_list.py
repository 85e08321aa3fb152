"""`list` shows every slot, every option and every YAML."""

from pathlib import Path
from typing import Any

import pytest

from txlab.commands.list import main
from txlab.core.errors import RequestError
from txlab.core.slot import SLOTS


def test_all_slots_with_their_options(capsys: Any):
    main([])
    shown = capsys.readouterr().out
    for path, slot in SLOTS.items():
        assert f"\n{path} " in f"\n{shown}"
        assert slot.doc in shown
        assert ", ".join(slot.options) in shown
    recipes = sorted(path.stem for path in (Path(__file__).parents[2] / "recipes").glob("*.yaml"))
    assert f"recipe          {', '.join(recipes)}" in shown
    assert "debug           fast, overfit" in shown


@pytest.mark.parametrize("form", ["model.attn", "model/attn"])
def test_one_slot(form: str, capsys: Any):
    main([form])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model.attn: Mixes tokens along the sequence."
    assert any(
        line.split()[:3] == ["gqa", "Grouped-query", "attention"] and "2023" in line
        for line in lines
    )


def test_groups_of_yaml(capsys: Any):
    main(["recipe"])
    assert "+recipe=NAME" in (shown := capsys.readouterr().out)
    assert "pretrain       Pretrain a small decoder" in shown
    main(["debug"])
    assert "overfit        One small batch, again and again" in capsys.readouterr().out


def test_bad_words():
    with pytest.raises(RequestError, match=r"Did you mean model\.attn"):
        main(["model.atn"])
    with pytest.raises(RequestError, match="list takes one slot, not 2"):
        main(["model.attn", "model.pos"])
