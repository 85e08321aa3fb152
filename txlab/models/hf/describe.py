"""The config of our decoder as a Hugging Face config.json, of the family that can express it."""

import dataclasses
from collections.abc import Callable
from typing import Any

from txlab.core.errors import RequestError
from txlab.models.decoder import Decoder
from txlab.models.hf.config import ACTIVATIONS, config_of
from txlab.models.hf.rotary import rope_facts, write_rope
from txlab.models.hf.weights import blank
from txlab.nn.attention import GQA, MHA, MQA, SWA, SoftmaxAttention, attention
from txlab.nn.ffn import MLP
from txlab.nn.init import init
from txlab.nn.pattern import layer_configs
from txlab.nn.position import RoPE

KINDS = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
}
"""Their class of each family."""


def describe(config: Decoder.Config) -> dict[str, Any]:
    """What config.json says; RequestError names each choice that no family of theirs has.

    Read back, it must give the same model. Dropout may differ: it acts in training only.
    """
    wanted = facts(config)
    family = _family(config, wanted)
    made = {
        "architectures": [KINDS[family]],
        "model_type": family,
        **WRITERS.get(family, _llama)(config, wanted, family),
        "vocab_size": wanted["model.vocab_size"],
        "tie_word_embeddings": config.tie_embeddings,
    }
    back = facts(config_of(made))
    lost = [f"{key}={_said(value)}" for key, value in wanted.items() if value != back[key]]
    if lost:
        raise RequestError(
            f"a Hugging Face {family} model cannot express {', '.join(lost)}; that family has "
            f"{', '.join(_said(back[entry.partition('=')[0]]) for entry in lost)} there."
        )
    return made


def facts(config: Decoder.Config) -> dict[str, Any]:
    """What decides the values that a model computes, by key; what is left open is filled in."""
    dims, own = config.dims(), blank(config)
    scale = init.build(config.init, dims).logit_scale
    hidden = own.get("layers.0.ffn.up.weight")
    ffn = dataclasses.asdict(config.ffn)
    pos = dataclasses.asdict(config.pos)
    if isinstance(config.pos, RoPE.Config):
        pos = rope_facts(config.pos, dims.context)
    return {
        "model": config.name,
        "model.dim": dims.dim,
        "model.n_layers": dims.n_layers,
        "model.n_heads": dims.n_heads,
        "model.head_dim": dims.head_dim,
        "model.context": dims.context,
        "model.vocab_size": dims.vocab_size,
        "model.tie_embeddings": config.tie_embeddings,
        "model.attn": [_attn(entry, dims) for entry in _layers(config)],
        "model.pos": pos,
        "model.norm": dataclasses.asdict(config.norm),
        "model.residual": {**dataclasses.asdict(config.residual), "drop_path": 0.0},
        "model.ffn": {**ffn, "hidden": None if hidden is None else len(hidden)},
        "model.init": "logits as they are" if scale == 1 else f"logits times {scale:g}",
        "model.pattern.ffn": config.pattern.ffn,
        "model.pattern.pos": config.pattern.pos,
    }


def _layers(config: Decoder.Config) -> list[Any]:
    return layer_configs(attention, config.pattern.attn, config.attn, config.n_layers)


def _attn(entry: Any, dims: Any) -> dict[str, Any]:
    """The fields of a layer's attention; these options differ by key heads and window only."""
    found = {key: value for key, value in dataclasses.asdict(entry).items() if key != "dropout"}
    cls = attention.option_of(entry).cls
    if cls in (MHA, MQA, GQA, SWA):
        assert issubclass(cls, SoftmaxAttention)
        found |= {"name": "gqa", "n_kv_heads": cls.kv_heads(entry, dims)}
        if isinstance(entry, SWA.Config):
            found["window"] = SWA.width(entry, dims)
        if not found["qk_norm"]:
            found.pop("qk_norm_eps")
    return found


def _family(config: Decoder.Config, wanted: dict[str, Any]) -> str:
    """The family that is most likely to have what the config asks for."""
    first = wanted["model.attn"][0]
    windows = {entry.get("window") for entry in wanted["model.attn"]}
    if config.pos.name == "learned":
        return "gpt2"
    if first.get("qk_norm"):
        return "qwen3"
    if len(windows) > 1 or (first.get("qkv_bias") and not first.get("out_bias")):
        return "qwen2"
    return "llama" if windows == {None} else "mistral"


def _llama(config: Decoder.Config, wanted: dict[str, Any], family: str) -> dict[str, Any]:
    first = wanted["model.attn"][0]
    rope = write_rope(config.pos, config.context)
    made: dict[str, Any] = {
        "hidden_size": config.dim,
        # Without one (a mixture of experts) any will do: the comparison afterwards refuses it.
        "intermediate_size": wanted["model.ffn"]["hidden"] or config.dim,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": first.get("n_kv_heads"),
        "head_dim": wanted["model.head_dim"],
        "hidden_act": "silu",
        "max_position_embeddings": config.context,
        "rms_norm_eps": getattr(config.norm, "eps", 1e-5),
        "rope_theta": rope["rope_theta"],
        "rope_parameters": rope,
    }
    if family in ("llama", "qwen3"):
        made["attention_bias"] = bool(first.get("out_bias"))
    if family == "llama":
        made["mlp_bias"] = config.ffn.bias
    if family == "mistral":
        made["sliding_window"] = first.get("window")
    if family in ("qwen2", "qwen3"):
        windows = [entry.get("window") for entry in wanted["model.attn"]]
        kinds = ["full_attention" if w is None else "sliding_attention" for w in windows]
        window = next((w for w in windows if w is not None), None)
        made |= {
            "use_sliding_window": window is not None,
            "sliding_window": window,
            "max_window_layers": kinds.index("sliding_attention") if window else config.n_layers,
            "layer_types": kinds,
        }
    return made


def _gpt2(config: Decoder.Config, wanted: dict[str, Any], family: str) -> dict[str, Any]:
    activation = config.ffn.activation if isinstance(config.ffn, MLP.Config) else None
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    attn = getattr(config.attn, "dropout", None)
    return {
        "n_embd": config.dim,
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "n_positions": config.context,
        "n_inner": wanted["model.ffn"]["hidden"],
        "activation_function": names.get(activation, "gelu_new") if activation else "gelu_new",
        "layer_norm_epsilon": getattr(config.norm, "eps", 1e-5),
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout if attn is None else attn,
    }


WRITERS: dict[str, Callable[[Decoder.Config, dict[str, Any], str], dict[str, Any]]] = {
    "gpt2": _gpt2
}


def _said(value: Any) -> str:
    """A value of `facts` in few words."""
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        return _said(value[0])
    if isinstance(value, dict):
        fields = ", ".join(f"{k}={v}" for k, v in value.items() if k != "name")
        return f"{value.get('name')}({fields})"
    return str(value)
