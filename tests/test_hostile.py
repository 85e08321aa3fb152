"""CKPT-04: no verb runs code of a checkpoint, whichever of its files holds it."""

import contextlib
import importlib
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import txlab
from tests.test_adapter_run import LORA, SIZES, go, start
from tests.train.tiny_run import unsealed
from txlab.core.errors import RequestError
from txlab.train import checkpoint

VERBS = ("evaluate", "generate", "merge", "export", "load", "resume", "start")
IGNORED = {
    **dict.fromkeys(("state", "generators", "raw-state"), ("resume",)),
    **dict.fromkeys(("callback", "logger", "trainer", "plugins"), ()),
}
"""What most verbs have no use for, with those that read and so refuse it."""
FEW = {
    *((attack, "base") for attack in ("state", "weights", "tokenizer", "mark", "tag", "plugins")),
    *((attack, "tuned") for attack in ("adapter", "origin", "option")),
}
"""Of each kind one; the others take longer than they tell, most days."""


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return open, (str(self.marker), "w")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    go(folder, "base", "data=chat", *SIZES, "train.steps=2")
    go(folder, "tuned", *start(folder), *LORA, "train.steps=2")
    return folder


def written(raw: bytes):
    return lambda file: file.write_bytes(raw)


def with_config(change: Any):
    """A config with something in it that names code; as for Hydra, for PyYAML, for us."""

    def write(file: Path) -> None:
        if isinstance(change, str):
            file.write_text(file.read_text() + change)
            return
        tree = yaml.safe_load(file.read_text())
        change(tree)
        file.write_text(yaml.safe_dump(tree))

    return write


def attacks(marker: Path, module: str) -> dict[str, tuple[str, Any]]:
    """By name: the file of a checkpoint, and what writes code into it."""
    opens = {"_target_": "builtins.open", "file": str(marker), "mode": "w"}
    tag = f"\nx: !!python/object/apply:builtins.open [{marker}, w]\n"
    bomb, whole = pickle.dumps(Bomb(marker)), ("weights", "adapter")
    return {
        "state": ("state.pt", lambda file: torch.save(Bomb(marker), file)),
        "generators": ("state.pt", lambda file: torch.save({"random": [Bomb(marker)]}, file)),
        "raw-state": ("state.pt", written(bomb)),
        **{f"{name}": (f"{name}.safetensors", written(bomb)) for name in whole},
        "torch-adapter": ("adapter.safetensors", lambda file: torch.save(Bomb(marker), file)),
        "tokenizer": ("tokenizer.json", written(bomb)),
        "origin": ("origin.json", written(bomb)),
        "mark": ("COMPLETE", written(bomb)),
        "tag": ("config.yaml", with_config(tag)),
        "class": ("config.yaml", with_config(lambda tree: tree["model"]["attn"].update(opens))),
        "option": ("config.yaml", with_config(lambda tree: tree["model"].update(attn=opens))),
        "callback": ("config.yaml", with_config(lambda tree: tree.update(callbacks={"x": opens}))),
        "logger": ("config.yaml", with_config(lambda tree: tree.update(logger={"x": opens}))),
        "trainer": ("config.yaml", with_config(lambda tree: tree["trainer"].update(opens))),
        "plugins": ("config.yaml", with_config(lambda tree: tree.update(plugins=[module]))),
        "provider": (
            "config.yaml",
            with_config(
                lambda tree: (
                    tree.update(_plugins_={"model.attn": module})
                    or tree["model"]["attn"].update(name="foreign")
                )
            ),
        ),
    }


def use(verb: str, folder: Path, name: str) -> None:
    there = folder / name
    if verb == "load":
        txlab.load(there)
    elif verb == "resume":
        words = start(folder) + LORA if name == "tuned" else ["data=chat", *SIZES]
        go(folder, name, *words, "train.steps=3", f"resume={there}")
    elif verb == "start":
        words = ["data=chat", f"model.init_from={there}", "train.steps=1"]
        go(folder, "next", *words)
    else:
        words = {"generate": ["prompt=a", "max_new_tokens=2"], "evaluate": []}
        given = words.get(verb, [str(folder / "out")])
        importlib.import_module(f"txlab.commands.{verb}").main([f"ckpt={there}", *given])


CASES = [
    pytest.param(attack, name, marks=() if (attack, name) in FEW else pytest.mark.slow)
    for attack in attacks(Path("x"), "x")
    for name in ("base", "tuned")
]


@pytest.mark.parametrize(("attack", "name"), CASES)
def test_no_verb_runs_what_a_checkpoint_holds(made, tmp_path, monkeypatch, name, attack):
    marker, module = tmp_path / "marker", "a_module_of_a_stranger"
    (tmp_path / f"{module}.py").write_text(f"open({str(marker)!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "there").mkdir()
    accepted = set()
    for verb in VERBS:
        there = tmp_path / "there" / verb
        shutil.copytree(made, there)
        found = checkpoint.find(there / name).path
        file, write = attacks(marker, module)[attack]
        if not (found / file).exists():
            return
        unsealed(found)
        write(found / file)
        with contextlib.suppress(RequestError):
            use(verb, there, name)
            accepted.add(verb)
        assert not marker.exists(), verb
    refused = set(VERBS) if attack not in IGNORED else {*IGNORED[attack]}
    if name == "base":
        refused.add("merge")  # which needs an adapter
    assert set(VERBS) - accepted == refused
