"""HYD-04: what a value is follows from its key, however spelled and whoever reads it again."""

from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from txlab.core.errors import RequestError
from txlab.core.hydra import compose, from_yaml, to_yaml


def value_at(tree: Any, key: str) -> Any:
    for word in key.split("."):
        tree = tree[word] if isinstance(tree, dict) else getattr(tree, word)
    return tree


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("optim.lr=1e-5", 1e-5),
        ("optim.lr='1e-5'", 1e-5),
        ('optim.lr="1e-5"', 1e-5),
        ("optim.lr=5e6", 5e6),
        ("optim.lr=007", 7.0),
        ("train.tokens=5e6", 5_000_000),
        ("seed=007", 7),
        ("data.micro_batch_size=null", None),
        ("data.field=1e-5", "1e-5"),
        ("data.field='1e-5'", "1e-5"),
        ("data.field=5e6", "5e6"),
        ("data.field=no", "no"),
        ("data.field=007", "007"),
        ("data.field=off", "off"),
        ("data.field='null'", "null"),
        ("train.sample=null", None),
        ("train.compile=true", True),
    ],
)
def test_a_value_is_what_its_key_takes_and_stays_it(word: str, value: Any):
    """In the config, in the saved file as we read it, as PyYAML and OmegaConf read it."""
    config, key = compose([word]), word.partition("=")[0]
    text = to_yaml(config)
    for found in (config, from_yaml(text), yaml.safe_load(text)):
        assert value_at(found, key) == value
        assert type(value_at(found, key)) is type(value)
    other = OmegaConf.to_container(OmegaConf.create(text))
    assert value_at(other, key) == value
    assert type(value_at(other, key)) is type(value)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("optim.lr=no", "optim.lr=no: expected a number"),
        ("optim.lr=null", "optim.lr=null: expected a number"),
        ("seed=1e-5", "seed=1e-0?5: expected a whole number"),
        ("seed=null", "seed=null: expected a whole number"),
        ("train.compile=no", "train.compile=no: expected true or false"),
        ("train.compile=007", "train.compile=007: expected true or false"),
        ("learning_rte=1e-3", "unknown key learning_rte"),
        ("optim.learning_rte=1e-3", r"unknown key optim\.learning_rte\. Keys of optim: .*lr"),
    ],
)
def test_what_its_key_does_not_take_is_refused_by_key_and_kind(word: str, message: str):
    with pytest.raises(RequestError, match=message):
        compose([word])
