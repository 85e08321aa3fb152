"""Every option composes in both forms with all its fields; recipes hold with every option."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra

import txlab
from txlab.core.errors import RequestError
from txlab.core.hydra import compose
from txlab.core.hydra.registry import RECIPES, Recipe, ready
from txlab.core.slot import SLOTS
from txlab.schema import Config

ready()
OPTIONS = [(slot.path, name) for slot in SLOTS.values() for name in slot.options]
PRESETS = ["fast", "overfit"]


def at(config: Any, path: str) -> Any:
    for word in path.split("."):
        config = getattr(config, word)
    return config


@pytest.mark.parametrize(("path", "name"), OPTIONS)
@pytest.mark.parametrize("form", ["dot", "slash"])
def test_every_option_composes_to_its_own_type_with_its_defaults(path: str, name: str, form: str):
    key = path if form == "dot" else path.replace(".", "/")
    chosen = at(compose([f"{key}={name}"]), path)
    option = SLOTS[path].options[name]
    assert type(chosen) is option.config
    assert chosen == option.config()


def test_the_python_default_is_the_composed_default():
    composed = compose()
    assert composed == Config()
    assert isinstance(composed.optim.betas, tuple)  # type: ignore[attr-defined]


@pytest.mark.parametrize("recipe", sorted(RECIPES))
@pytest.mark.parametrize(("path", "name"), OPTIONS)
def test_every_recipe_composes_with_every_option(recipe: str, path: str, name: str):
    given = [f"{key}=runs/base" for key in RECIPES[recipe].needs]
    config = compose([f"+recipe={recipe}", f"{path}={name}", *given])
    assert at(config, path).name == name


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_win_over_recipes_in_any_order(preset: str):
    words = ["+recipe=pretrain", f"debug={preset}"]
    assert compose(words) == compose(words[::-1])
    assert compose(words).model.dim < compose(["+recipe=pretrain"]).model.dim


def test_all_attentions_take_all_positions_norms_and_ffns():
    kinds = ("model.attn", "model.pos", "model.norm", "model.ffn")
    names = [list(SLOTS[kind].options) for kind in kinds]
    longest = max(len(options) for options in names)
    for row in itertools.islice(zip(*(itertools.cycle(o) for o in names), strict=False), longest):
        config = compose([f"{kind}={name}" for kind, name in zip(kinds, row, strict=True)])
        assert tuple(at(config, kind).name for kind in kinds) == row


def test_values_reach_their_fields_and_siblings_stay():
    config = compose(
        ["model.attn=gqa", "model.attn.n_kv_heads=2", "model.attn.window=64", "optim.lr=1e-3"]
    )
    assert (config.model.attn.n_kv_heads, config.model.attn.window) == (2, 64)  # type: ignore[attr-defined]
    assert config.optim.lr == 1e-3
    assert config.optim.weight_decay == Config().optim.weight_decay


def test_recipe_without_plus_and_the_command_line_over_the_recipe():
    assert compose(["recipe=pretrain"]) == compose(["+recipe=pretrain"])
    assert compose(["+recipe=pretrain", "model.dim=128"]).model.dim == 128
    assert compose(["model.dim=128", "+recipe=pretrain"]).model.dim == 128


@pytest.mark.parametrize("key", ["steps", "tokens", "epochs"])
def test_the_length_on_the_command_line_replaces_the_recipes(key: str):
    train = compose(["+recipe=pretrain", f"train.{key}=7"]).train
    lengths = {"steps": train.steps, "tokens": train.tokens, "epochs": train.epochs}
    assert lengths == {"steps": None, "tokens": None, "epochs": None} | {key: 7}


def test_two_lengths_contradict_each_other():
    with pytest.raises(RequestError, match=r"train.steps=3 and train.epochs=1 contradict"):
        compose(["train.steps=3", "train.epochs=1"])


def test_whole_numbers_with_scales():
    assert compose(["train.tokens=10M"]).train.tokens == 10_000_000
    assert compose(["train.tokens=1e9"]).train.tokens == 1_000_000_000
    assert compose(["model.context=64k"]).model.context == 64_000


def test_input_paths_are_absolute_from_the_launch_folder(tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = compose(["data.path=texts/*.txt", "model.init_from=~/run", "resume=auto"])
    assert config.data.path == str(tmp_path / "texts/*.txt")  # type: ignore[attr-defined]
    assert config.model.init_from == str(tmp_path / "home/run")
    assert config.resume == "auto"


def test_interpolations_refer_to_the_composed_config():
    assert compose(["seed=5", "model.n_layers=${seed}"]).model.n_layers == 5
    config = compose(["+logger.x.name=${model.attn.name}", "model.attn=mqa"])
    assert config.logger == {"x": {"name": "mqa"}}


def test_composing_leaves_hydra_as_it_was():
    compose()
    assert not GlobalHydra.instance().is_initialized()


def test_the_public_functions():
    assert txlab.compose(["seed=3"]).seed == 3
    config = txlab.compose(["model.dim=32", "model.n_layers=1", "tokenizer.vocab_size=300"])
    model = txlab.build(config)
    assert tuple(model.head.weight.shape) == (300, 32)


@pytest.mark.parametrize("recipe", ["sft", "dpo"])
def test_recipes_that_start_from_a_model_say_so(recipe: str):
    said = rf"\+recipe={recipe} needs model\.init_from=\.\.\.: Run or checkpoint"
    for words in ([], ["model.init_from=null"]):
        with pytest.raises(RequestError, match=said):
            compose([f"+recipe={recipe}", *words])


def test_a_recipe_that_bends_a_truth_value_is_named(tmp_path: Path, monkeypatch: Any):
    file = tmp_path / "mine.yaml"
    file.write_text("# Mine.\ntrain:\n  compile: 2\n")
    monkeypatch.setitem(RECIPES, "mine", Recipe("mine", file, "Mine."))
    said = rf"recipe {file}: train\.compile=2: expected true or false"
    with pytest.raises(RequestError, match=said):
        compose(["+recipe=mine"])
