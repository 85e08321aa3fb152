"""What Hydra may choose from: the typed root, every option, every recipe."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from txlab.core import plugins
from txlab.core.errors import RequestError
from txlab.core.files import data_folder
from txlab.core.hydra import folders, keys
from txlab.core.slot import blank

RECIPES: dict[str, "Recipe"] = {}
"""Every recipe by name (`pretrain`, `paper/gpt2`)."""


@dataclass(frozen=True)
class Recipe:
    """One thin YAML: what a run is for."""

    name: str
    file: Path
    doc: str
    plugins: tuple[str, ...] = ()
    """Modules it wants imported before it is composed."""
    needs: tuple[str, ...] = ()
    """Keys that stand in it as ???: the command line must give them."""

    def check(self) -> None:
        """RequestError for a value that composing would bend rather than refuse."""
        try:
            keys.check_truths(yaml.safe_load(self.file.read_text(encoding="utf-8")) or {})
        except RequestError as error:
            raise RequestError(f"recipe {self.file}: {error}") from error


@cache
def ready() -> None:
    """Make every slot, option and recipe known; done once a process."""
    with uncollected():
        _discover()


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage inside: a million nodes of configs are made and hardly one dies, and
    looking for the dead among them costs a tenth of the start."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _discover() -> None:
    from txlab.schema import Config

    folders.register()
    plugins.discover()
    store = ConfigStore.instance()
    # Hydra copies its repository, and the store with it, for each of the hundred questions that
    # --help and completion ask. `load` hands out copies anyway, so the store itself may be shared.
    setattr(store, "__deepcopy__", lambda memo: store)  # noqa: B010
    store.store(name="schema", node=blank(Config, ""), provider="txlab")
    _add_recipes(data_folder("recipes"), "txlab")
    for entry in plugins.chosen(plugins.RECIPES):
        spec = find_spec(entry.value)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            _add_recipes(Path(folder), entry.value)


def entries(group: str) -> dict[str, str]:
    """Names of a YAML group (`recipe`, `trainer` ...) with the first comment of each file."""
    if group == "recipe":
        return {recipe.name: recipe.doc for recipe in RECIPES.values()}
    files = sorted((data_folder("conf") / group).glob("*.yaml"))
    return {file.stem: _comment(file) for file in files}


def _comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    comments = (line.lstrip("# ") for line in lines if line.startswith("#"))
    return next((line for line in comments if not line.startswith("@")), "")


def _add_recipes(folder: Path, provider: str) -> None:
    for file in sorted(folder.rglob("*.yaml")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        if name in RECIPES:
            raise RequestError(f"recipe {name} exists twice: {RECIPES[name].file} and {file}.")
        try:
            node = OmegaConf.load(file)
        except (OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError) as error:
            raise RequestError(
                f"recipe {file} cannot be read: {' '.join(str(error).split())}"
            ) from error
        lines = file.read_text(encoding="utf-8").splitlines()
        doc = lines[0].lstrip("# ") if lines and lines[0].startswith("#") else ""
        wanted = OmegaConf.select(node, "plugins", default=None) or ()
        needs = tuple(sorted(OmegaConf.missing_keys(node)))
        RECIPES[name] = Recipe(name, file, doc, tuple(wanted), needs)
        group, _, leaf = f"recipe/{name}".rpartition("/")
        ConfigStore.instance().store(
            group=group, name=leaf, node=node, package="_global_", provider=provider
        )
