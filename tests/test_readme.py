"""What the README shows is what there is: commands compose, tables are complete, files exist."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import txlab
from txlab.__main__ import verbs
from txlab.core.hydra import prepare, registry
from txlab.core.slot import SLOTS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands():
    """Every `python -m txlab ...` of a code block, without the remark that follows it."""
    # Every second part stands between fences; its first line is the language, or empty.
    blocks = re.split(r"^```", README, flags=re.MULTILINE)[1::2]
    lines = [line for block in blocks for line in block.splitlines()[1:]]
    found = [line for line in lines if line.startswith("python -m txlab")]
    return [re.split(r"\s{2,}", line)[0] for line in found]


@pytest.mark.parametrize("line", commands())
def test_commands_are_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[3:]
    if words and words[0] in verbs():
        assert callable(import_module(f"txlab.commands.{words[0]}").main)
        return
    if "-m" in words:
        assert len(prepare([w for w in words if w != "-m"], multirun=True)) > 0
        return
    if any(word.startswith("model.init_from=") for word in words):  # of a run that isn't there
        assert any(word.startswith("+recipe=") for word in prepare(words))
        return
    assert txlab.compose(words).model.name == "decoder"


def test_the_table_of_slots_is_complete():
    registry.ready()
    rows = dict(re.findall(r"^\| `([\w.]+)` \| ([\w, ]+) \|$", README, re.MULTILINE))
    shown = {slot: set(text.split(", ")) for slot, text in rows.items()}
    assert shown == {path: set(slot.options) for path, slot in SLOTS.items()}


def test_the_table_of_recipes_is_complete():
    registry.ready()
    shown = re.findall(r"^\| `([\w/]+)` \| `python -m txlab", README, re.MULTILINE)
    assert sorted(shown) == sorted(registry.RECIPES)


def test_files_and_folders_that_it_names_exist():
    named = re.findall(r"`(txlab/[\w/]+\.py)`", README) + re.findall(r"\]\(([\w./]+)\)", README)
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).exists()] == []
