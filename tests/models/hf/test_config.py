"""config.json: every family's defaults, what is refused and how."""

import json
from typing import Any

import pytest
import transformers

from txlab.core.errors import RequestError
from txlab.models.hf.config import DEFAULTS, SIZES, config_of
from txlab.models.hf.directory import model_config

NAMES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gpt2": "GPT2"}


def sized(given: dict[str, Any]) -> dict[str, Any]:
    """With the sizes that `given` leaves out, if it has a family's name."""
    family = given.get("model_type")
    return {key: DEFAULTS[family][key] for key in SIZES.get(family, ())} | given  # type: ignore


@pytest.mark.parametrize("family", DEFAULTS)
def test_what_a_file_leaves_out_is_as_in_transformers(family: str) -> None:
    """A file may hold no more than its type and sizes: all else is then as in transformers."""
    whole = getattr(transformers, f"{NAMES[family]}Config")().to_dict()
    if family == "llama":
        whole["num_key_value_heads"] = None
    sparse = config_of(sized({"model_type": family}))
    sparse.head_dim = sparse.dims().head_dim if "head_dim" in whole else None
    assert sparse == config_of(whole)


def test_the_older_spelling_of_rotary_settings() -> None:
    old = config_of(sized({"model_type": "llama", "rope_theta": 1e5, "rope_scaling": None}))
    new = {"rope_type": "default", "rope_theta": 1e5}
    assert old == config_of(sized({"model_type": "llama", "rope_parameters": new}))
    assert old.pos.theta == 1e5  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_windows_of_the_upper_layers_only(family: str) -> None:
    fields = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2}
    given = sized({"model_type": family, "num_hidden_layers": 3, **fields})
    whole = getattr(transformers, f"{NAMES[family]}Config")(**given).to_dict()
    found = config_of(given)
    assert found == config_of(whole)
    assert [entry["window"] for entry in found.pattern.attn] == [None, None, 5]
    given["use_sliding_window"] = False
    assert config_of(given).pattern.attn == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model_type": "gemma2"}, "model_type 'gemma2' is not supported; llama, mistral, qwen2"),
        ({}, "model_type 'None' is not supported"),
        (
            {"model_type": "llama", "rope_scaling": {"type": "longrope", "factor": 2.0}},
            "rope_scaling: positions of type 'longrope' are not supported",
        ),
        (
            {"model_type": "llama", "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            "rope_parameters: positions of type 'dynamic' are not supported",
        ),
        ({"model_type": "mistral", "hidden_act": "gelu"}, 'hidden_act="gelu" is not supported'),
        ({"model_type": "gpt2", "activation_function": "elu"}, 'activation_function="elu"'),
        ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx=true"),
        ({"model_type": "gpt2", "embd_pdrop": 0.2}, "embd_pdrop=0.2 is not supported"),
        ({"model_type": "qwen2", "layer_types": ["linear"]}, 'layer_types=["linear"]'),
        ({"model_type": "llama", "quantization_config": {"bits": 4}}, "quantization_config="),
        ({"model_type": "llama", "hidden_size": "wide"}, "a value has the wrong type"),
        (
            {"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3},
            "is not a multiple",
        ),
    ],
)
def test_what_cannot_be_built_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        config_of(sized(given), "DIR/config.json")
    assert str(refusal.value).startswith("DIR/config.json: ")
    assert message in str(refusal.value)


@pytest.mark.parametrize("family", DEFAULTS)
def test_sizes_are_never_guessed(family: str) -> None:
    """A damaged file of one key would otherwise be a model of billions of parameters."""
    with pytest.raises(RequestError) as refusal:
        config_of({"model_type": family}, "DIR/config.json")
    assert str(refusal.value).startswith(f"DIR/config.json: {', '.join(SIZES[family])} missing")
    without = sized({"model_type": family})
    del without["vocab_size"]
    with pytest.raises(RequestError, match=r"DIR/config\.json: vocab_size missing: "):
        config_of(without, "DIR/config.json")


@pytest.mark.parametrize("text", ["", "[1]", json.dumps("llama")])
def test_a_file_that_is_no_object(tmp_path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RequestError, match=r"config\.json"):
        model_config(tmp_path)
