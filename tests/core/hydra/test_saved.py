"""A typed config survives its YAML, whoever reads it, and nothing in the file is executed."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from txlab.core.errors import RequestError
from txlab.core.hydra import compose, from_yaml, to_yaml
from txlab.core.hydra.registry import ready
from txlab.core.slot import SLOTS
from txlab.schema import Config

ready()


@pytest.mark.parametrize(("path", "name"), [(s.path, n) for s in SLOTS.values() for n in s.options])
def test_every_option_survives(path: str, name: str):
    config = compose([f"{path}={name}"])
    assert from_yaml(to_yaml(config)) == config


@pytest.mark.parametrize(
    "text", ["${x}", "\\${x}", "1e-5", "no", "null", "~", "2026-01-01", "a: b", "# c", " x "]
)
def test_texts_survive(text: str):
    config = compose()
    config.train.sample = text
    assert from_yaml(to_yaml(config)) == config


def test_every_reader_sees_the_same_types():
    config = compose(["optim.lr=1e-5", "train.sample=1e-5", "data.field=no", "optim.eps=1e-8"])
    text = to_yaml(config)
    assert yaml.safe_load(text) == OmegaConf.to_container(OmegaConf.create(text))
    assert yaml.safe_load(text)["optim"]["lr"] == 1e-5
    assert yaml.safe_load(text)["train"]["sample"] == "1e-5"


def test_a_file_edited_by_hand_is_read_as_it_is_meant():
    text = to_yaml(compose()).replace("lr: 0.001", "lr: 1e-5")
    assert from_yaml(text).optim.lr == 1e-5


def test_a_key_that_did_not_exist_yet_has_its_default():
    tree = yaml.safe_load(to_yaml(compose()))
    del tree["train"]["skip_nonfinite"], tree["seed"]
    assert from_yaml(yaml.safe_dump(tree)) == Config()


def edited(**changes: Any) -> str:
    tree = yaml.safe_load(to_yaml(compose()))
    for path, value in changes.items():
        *parents, leaf = path.split("__")
        node = tree
        for word in parents:
            node = node[word]
        node[leaf] = value
    return yaml.safe_dump(tree)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "config.yaml is no YAML"),
        ("just words", "config.yaml holds no config"),
        ("seed: 1", "config.yaml: model is missing"),
        (edited(model__attn={"name": "mine"}), "config.yaml: unknown option 'mine' of model.attn"),
        (edited(model__dim="wide"), "config.yaml: model.dim=wide: expected a whole number"),
        (edited(train__compile=2), "config.yaml: train.compile=2: expected true or false"),
        (edited(model__attn__qk_norm="on"), "config.yaml: model.attn.qk_norm=on: expected true"),
        (
            edited(model__n_layer=3),
            "config.yaml: unknown key model.n_layer. Did you mean model.n_layers",
        ),
        (edited(model__dim=30, model__n_heads=4), "config.yaml: model.dim=30 is not a multiple"),
        ("seed: 1\nseed: 2", "stands twice"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(text: str, said: str):
    with pytest.raises(RequestError) as error:
        from_yaml(text, "config.yaml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_plugin_is_named():
    text = edited(model__attn={"name": "mine"}, _plugins_={"model.attn": "txlab-mine 0.3"})
    with pytest.raises(
        RequestError, match=r"needs model.attn=mine of txlab-mine 0.3, which is not"
    ):
        from_yaml(text)


def test_nothing_in_a_file_is_executed(tmp_path: Path, monkeypatch: Any):
    marker = tmp_path / "executed"
    (tmp_path / "evil_plugin.py").write_text(f"open({str(marker)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    target = {"x": {"_target_": "evil_plugin.anything"}}
    text = edited(plugins=["evil_plugin"], callbacks=target, logger=target, trainer=target["x"])
    config = from_yaml(text)
    assert (config.trainer, config.logger, config.callbacks) == (Config().trainer, {}, {})
    with pytest.raises(RequestError, match="is no YAML"):
        from_yaml(f"model: !!python/object/apply:builtins.open ['{marker}', 'w']")
    assert not marker.exists()


def test_a_config_from_before_there_were_adapters_has_none():
    tree = yaml.safe_load(to_yaml(compose(["adapter=lora"])))
    assert tree.pop("adapter")["name"] == "lora"
    assert from_yaml(yaml.safe_dump(tree)).adapter.name == "none"
