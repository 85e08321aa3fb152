"""Imports point one way, and each foreign framework has its places."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "txlab").rglob("*.py"))
LAYERS = ["core", "data", "nn", "models", "objectives", "train", "run", "commands", "__main__"]
PLACE = {name: number for number, name in enumerate(LAYERS)}
# Beside the layers: what each may import lazily, or because it closes a list.
ALIASES = {"loading": "run", "schema": "run"}
SCHEMA_READERS = ("run", "loading", "commands", "core", "testing", "__init__")
HYDRA = (
    "core/slot.py",
    "core/hydra/",
    "run.py",
    "train/loggers.py",
    "train/trainer.py",
    "commands/",
)
LIGHTNING = ("train/", "run.py")
HEAVY = {"lightning", "peft", "torchmetrics", "datasets", "wandb", "matplotlib", "transformers"}


def imports(file: Path, *, lazy: bool) -> Iterator[str]:
    """Full names of the modules that a file imports; without `lazy` only those at module level."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.If))
        and (not isinstance(function, ast.If) or "TYPE_CHECKING" in ast.dump(function.test))
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if not lazy and id(node) in inner:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(name: str) -> str:
    """The layer of `txlab.nn.mask.Mask` or of a file's path below txlab."""
    return name.split(".")[1] if name.startswith("txlab.") else name


def below(file: Path) -> str:
    return file.relative_to(ROOT / "txlab").as_posix()


@pytest.mark.parametrize("file", FILES, ids=below)
def test_imports_point_one_way(file: Path):
    own = below(file).partition("/")[0].removesuffix(".py")
    for name in imports(file, lazy=True):
        if not name.startswith("txlab."):
            continue
        there = layer(name)
        if there == "schema":
            assert own in SCHEMA_READERS or PLACE.get(own, -1) >= PLACE["train"], name
        elif own == "testing":
            assert there not in ("run", "commands", "__main__"), name
        elif own == "__init__" or own == there:
            continue
        elif own == "schema":
            assert PLACE[ALIASES.get(there, there)] <= PLACE["train"], name
        else:
            if there == "testing":
                assert below(file) == "commands/check.py", f"{below(file)} imports {name}"
                continue
            here, target = (PLACE[ALIASES.get(word, word)] for word in (own, there))
            assert target <= here, f"{below(file)} imports {name}"


@pytest.mark.parametrize(
    ("package", "places"),
    [("hydra", HYDRA), ("omegaconf", HYDRA), ("lightning", LIGHTNING), ("pytorch_lightning", ())],
)
def test_foreign_frameworks_keep_to_their_places(package: str, places: tuple[str, ...]):
    for file in FILES:
        if any(name.partition(".")[0] == package for name in imports(file, lazy=True)):
            assert places, f"{below(file)} imports {package}"
            assert below(file).startswith(places), f"{below(file)} imports {package}"


def test_annotations_are_objects():
    """OmegaConf and jaxtyping read annotations; as strings they break."""
    for file in FILES:
        assert "__future__.annotations" not in set(imports(file, lazy=True)), file


def test_what_help_and_list_load_is_light():
    code = "import sys, txlab.core.hydra.registry as r; r.ready(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "txlab.nn.attention" in loaded
    assert not loaded & HEAVY
