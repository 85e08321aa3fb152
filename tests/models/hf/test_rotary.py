"""Rotary settings of config.json: what is mapped, what is refused, and the way back."""

from typing import Any

import pytest

from tests.models.hf.test_config import sized
from txlab.core.errors import RequestError
from txlab.models import Decoder
from txlab.models.hf.config import config_of
from txlab.models.hf.describe import describe
from txlab.nn.attention import GQA
from txlab.nn.ffn import SwiGLU
from txlab.nn.position import RoPE
from txlab.nn.position.scaling import Scaling

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(**rope: Any) -> RoPE.Config:
    found = config_of(sized({"model_type": "llama", "rope_parameters": rope})).pos
    assert isinstance(found, RoPE.Config)
    return found


def test_llama3_arrives_field_by_field() -> None:
    assert read(**LLAMA3) == RoPE.Config(
        theta=5e5,
        scaling=Scaling.llama3,
        factor=8.0,
        original_context=8192,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    )
    old = {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    given = sized({"model_type": "llama", "rope_scaling": old, "rope_theta": 5e5})
    assert config_of(given).pos == read(**LLAMA3)


@pytest.mark.parametrize(
    ("rope", "said"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "'dynamic' are not supported .*each input"),
        ({"rope_type": "longrope", "factor": 2.0}, "'longrope' are not supported .*grows"),
        ({"rope_type": "proportional"}, "'proportional' are not supported; default, linear"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, "truncate=False"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "llama3", "factor": "8"}, "wrong type"),
    ],
)
def test_other_frequencies_are_refused(rope: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read(**rope)


def model(pos: RoPE.Config) -> Decoder.Config:
    return Decoder.Config(
        dim=32, vocab_size=61, attn=GQA.Config(), ffn=SwiGLU.Config(), pos=pos, context=64
    )


@pytest.mark.parametrize(
    "pos",
    [
        RoPE.Config(scaling=Scaling.linear, factor=2.0),
        RoPE.Config(scaling=Scaling.llama3, factor=8.0),
        RoPE.Config(scaling=Scaling.llama3, factor=8.0, original_context=16, low_freq_factor=0.5),
        RoPE.Config(scaling=Scaling.yarn, factor=4.0),
        RoPE.Config(scaling=Scaling.yarn, factor=4.0, mscale=1.0, mscale_all_dim=0.5),
        RoPE.Config(scaling=Scaling.yarn, factor=4.0, original_context=16, beta_fast=8.0),
    ],
)
def test_what_is_written_reads_back_as_the_same_frequencies(pos: RoPE.Config) -> None:
    written = describe(model(pos))
    assert written["rope_parameters"]["rope_type"] == str(pos.scaling)
    back = config_of(written).pos
    assert isinstance(back, RoPE.Config)
    assert (back.scaling, back.factor) == (pos.scaling, pos.factor)
    assert back.original_context in (pos.original_context or 64, None)


@pytest.mark.parametrize(
    "pos",
    [
        RoPE.Config(scaling=Scaling.ntk, factor=2.0),
        RoPE.Config(scaling=Scaling.dynamic, factor=2.0, original_context=16),
        RoPE.Config(partial=0.5),
    ],
)
def test_what_they_cannot_express_is_refused(pos: RoPE.Config) -> None:
    with pytest.raises(RequestError, match=r"cannot express model\.pos"):
        describe(model(pos))
