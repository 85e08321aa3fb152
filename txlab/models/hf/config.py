"""Hugging Face's config.json as the config of our decoder, family by family.

Keys that a family's own code reads are mapped or refused by name; it ignores all others, so do we.
Defaults are those of transformers' config classes, which files may rely on.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.models.decoder import Decoder
from txlab.models.hf.mapping import table_of
from txlab.models.hf.rotary import read_rope
from txlab.nn.attention import GQA
from txlab.nn.ffn import MLP, Activation, SwiGLU
from txlab.nn.norm import LayerNorm, RMSNorm
from txlab.nn.pattern import Pattern
from txlab.nn.position import Learned

FILE = "config.json"
ACTIVATIONS = {
    "gelu": Activation.gelu,
    "gelu_new": Activation.gelu_tanh,
    "gelu_pytorch_tanh": Activation.gelu_tanh,
    "relu": Activation.relu,
    "relu2": Activation.relu2,
}
"""Their names of the perceptron's nonlinearities."""
LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "rope_parameters": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
    "quantization_config": None,
}
QWEN2 = {
    **{key: value for key, value in LLAMA.items() if key not in ("attention_bias", "mlp_bias")},
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": {
        **{key: value for key, value in LLAMA.items() if key not in ("attention_bias", "mlp_bias")},
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "qwen2": {key: value for key, value in QWEN2.items() if key != "head_dim"},
    "qwen3": {**QWEN2, "head_dim": 128, "attention_bias": False},
    "gpt2": {
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "quantization_config": None,
    },
}
"""What each family's code reads, with the values of keys that a file leaves out."""

SIZES = {
    "gpt2": ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"),
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3"),
        ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
         "num_attention_heads"),
    ),
}  # fmt: skip
"""Keys that every file of a family has: a default here would be another model, of billions."""


def read(folder: Path) -> dict[str, Any]:
    """The object in a directory's config.json; RequestError where it cannot be read."""
    file = folder / FILE
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise RequestError(f"{file} cannot be read ({why}).") from error
    if not isinstance(found, dict):
        raise RequestError(f"{file} holds no JSON object.")
    return found


def config_of(given: Mapping[str, Any], source: str = FILE) -> Decoder.Config:
    """Our config of the model that theirs describes; RequestError names what cannot be built."""
    family = str(given.get("model_type"))
    try:
        table_of(family)
        missing = [key for key in SIZES[family] if given.get(key) is None]
        if missing:
            raise RequestError(
                f"{', '.join(missing)} missing: it is not whole, take the model's own file again."
            )
        theirs = DEFAULTS[family] | {k: v for k, v in given.items() if k in DEFAULTS[family]}
        if theirs["quantization_config"] is not None:
            raise _refusal(theirs, "quantization_config", "none; take the unquantised model")
        return READERS.get(family, _llama)(theirs, family)
    except (TypeError, AttributeError) as error:
        raise RequestError(f"{source}: a value has the wrong type ({error}).") from error
    except RequestError as error:
        raise RequestError(f"{source}: {error}") from error


def _llama(theirs: Mapping[str, Any], family: str) -> Decoder.Config:
    """Llama and its kin: RoPE, RMSNorm, SwiGLU; grouped heads, windows, biases, normed heads."""
    _expect(theirs, "hidden_act", "silu", "swish")
    biased = theirs.get("attention_bias", False)
    windows = _windows(theirs, family)
    attn = GQA.Config(
        n_kv_heads=theirs["num_key_value_heads"] or theirs["num_attention_heads"],
        window=windows[0] if len(set(windows)) == 1 else None,
        dropout=theirs["attention_dropout"] or None,
        qk_norm=family == "qwen3",
        qk_norm_eps=theirs["rms_norm_eps"] if family == "qwen3" else 1e-5,
        qkv_bias=biased or family == "qwen2",
        out_bias=biased,
    )
    return Decoder.Config(
        dim=theirs["hidden_size"],
        n_layers=theirs["num_hidden_layers"],
        n_heads=theirs["num_attention_heads"],
        head_dim=theirs.get("head_dim"),
        context=theirs["max_position_embeddings"],
        vocab_size=theirs["vocab_size"],
        tie_embeddings=theirs["tie_word_embeddings"],
        attn=attn,
        pos=read_rope(theirs),
        norm=RMSNorm.Config(eps=theirs["rms_norm_eps"]),
        ffn=SwiGLU.Config(hidden=theirs["intermediate_size"], bias=theirs.get("mlp_bias", False)),
        pattern=Pattern(
            attn=[{"name": "gqa", "window": window} for window in windows]
            if len(set(windows)) > 1
            else []
        ),
    )


def _windows(theirs: Mapping[str, Any], family: str) -> list[int | None]:
    """How far each layer sees; None: everything before."""
    window, n = theirs.get("sliding_window"), theirs["num_hidden_layers"]
    if family not in ("qwen2", "qwen3"):
        return [window] * n
    if not theirs["use_sliding_window"]:
        window = None
    kinds = theirs["layer_types"]
    if kinds is None:
        first = theirs["max_window_layers"] if window is not None else n
        return [None if i < first else window for i in range(n)]
    known = {"full_attention": None, "sliding_attention": window}
    if len(kinds) != n or not set(kinds) <= set(known):
        raise _refusal(theirs, "layer_types", f"{n} of {', '.join(known)}")
    if window is None and "sliding_attention" in kinds:
        raise _refusal(theirs, "layer_types", "full_attention only, without a sliding_window")
    return [known[kind] for kind in kinds]


def _gpt2(theirs: Mapping[str, Any], family: str) -> Decoder.Config:
    """GPT-2: learned positions, LayerNorm, a perceptron, biases everywhere."""
    _expect(theirs, "activation_function", *ACTIVATIONS)
    _expect(theirs, "scale_attn_weights", True)
    _expect(theirs, "scale_attn_by_inverse_layer_idx", False)
    _expect(theirs, "add_cross_attention", False)
    _expect(theirs, "embd_pdrop", theirs["resid_pdrop"])
    return Decoder.Config(
        dim=theirs["n_embd"],
        n_layers=theirs["n_layer"],
        n_heads=theirs["n_head"],
        context=theirs["n_positions"],
        vocab_size=theirs["vocab_size"],
        tie_embeddings=theirs["tie_word_embeddings"],
        dropout=theirs["resid_pdrop"],
        attn=GQA.Config(
            n_kv_heads=theirs["n_head"],
            dropout=theirs["attn_pdrop"],
            qkv_bias=True,
            out_bias=True,
        ),
        pos=Learned.Config(),
        norm=LayerNorm.Config(eps=theirs["layer_norm_epsilon"]),
        ffn=MLP.Config(
            hidden=theirs["n_inner"],
            bias=True,
            activation=ACTIVATIONS[theirs["activation_function"]],
        ),
    )


READERS: dict[str, Callable[[Mapping[str, Any], str], Decoder.Config]] = {"gpt2": _gpt2}


def _expect(theirs: Mapping[str, Any], key: str, *supported: Any) -> None:
    if theirs[key] not in supported:
        raise _refusal(theirs, key, " or ".join(json.dumps(value) for value in supported))


def _refusal(theirs: Mapping[str, Any], key: str, supported: str) -> RequestError:
    return RequestError(f"{key}={json.dumps(theirs[key])} is not supported; expected {supported}.")
