"""Weights of Hugging Face's decoders under our names: one table of name patterns a family.

A pattern's `{}` is the layer number. What is not in the table is an error, never left out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from txlab.models import Decoder
from txlab.nn.attention import GQA
from txlab.nn.ffn import MLP, SwiGLU
from txlab.nn.ffn.mlp import Activation
from txlab.nn.norm import LayerNorm, RMSNorm
from txlab.nn.position import Learned, RoPE


@dataclass(frozen=True)
class Row:
    """A tensor of theirs and the one, or the several that split its outputs evenly, of ours."""

    theirs: str
    ours: tuple[str, ...]
    conv1d: bool = False
    """Stored as [in, out] (GPT-2's Conv1D), where a linear has [out, in]."""


def row(theirs: str, *ours: str, conv1d: bool = False) -> Row:
    return Row(theirs, ours, conv1d)


def both(theirs: str, *ours: str, conv1d: bool = False) -> list[Row]:
    """The rows of a layer's weight and of its bias, which may be absent; no Conv1D has a matrix
    for a bias."""
    return [
        row(f"{theirs}.weight", *(f"{name}.weight" for name in ours), conv1d=conv1d),
        row(f"{theirs}.bias", *(f"{name}.bias" for name in ours)),
    ]


GPT2 = [
    row("transformer.wte.weight", "embed.weight"),
    row("transformer.wpe.weight", "pos.table.weight"),
    *both("transformer.h.{}.ln_1", "layers.{}.residual.norms.attn"),
    *both(
        "transformer.h.{}.attn.c_attn",
        *(f"layers.{{}}.attn.{part}" for part in "qkv"),
        conv1d=True,
    ),
    *both("transformer.h.{}.attn.c_proj", "layers.{}.attn.o", conv1d=True),
    *both("transformer.h.{}.ln_2", "layers.{}.residual.norms.ffn"),
    *both("transformer.h.{}.mlp.c_fc", "layers.{}.ffn.up", conv1d=True),
    *both("transformer.h.{}.mlp.c_proj", "layers.{}.ffn.down", conv1d=True),
    *both("transformer.ln_f", "norm"),
    row("lm_head.weight", "head.weight"),
]
LLAMA = [
    row("model.embed_tokens.weight", "embed.weight"),
    row("model.layers.{}.input_layernorm.weight", "layers.{}.residual.norms.attn.weight"),
    *(
        entry
        for part in "qkvo"
        for entry in both(f"model.layers.{{}}.self_attn.{part}_proj", f"layers.{{}}.attn.{part}")
    ),
    *(
        row(f"model.layers.{{}}.self_attn.{part}.weight", f"layers.{{}}.attn.{part}.weight")
        for part in ("q_norm", "k_norm")
    ),
    row("model.layers.{}.post_attention_layernorm.weight", "layers.{}.residual.norms.ffn.weight"),
    *(
        entry
        for part in ("gate", "up", "down")
        for entry in both(f"model.layers.{{}}.mlp.{part}_proj", f"layers.{{}}.ffn.{part}")
    ),
    row("model.norm.weight", "norm.weight"),
    row("lm_head.weight", "head.weight"),
]
TABLES = {"gpt2": GPT2, "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA}


def renamed(weights: Mapping[str, Tensor], table: list[Row]) -> dict[str, Tensor]:
    """`weights` under our names; KeyError for a tensor that the table does not know."""
    found: dict[str, Tensor] = {}
    patterns = [(re.compile(re.escape(r.theirs).replace(r"\{\}", r"(\d+)")), r) for r in table]
    for name, tensor in weights.items():
        hits = [(hit, r) for pattern, r in patterns if (hit := pattern.fullmatch(name))]
        if len(hits) != 1:
            raise KeyError(f"{name}: {len(hits)} rows of the table fit")
        hit, entry = hits[0]
        parts = (tensor.T if entry.conv1d else tensor).chunk(len(entry.ours))
        for ours, part in zip(entry.ours, parts, strict=True):
            found[ours.format(*hit.groups())] = part.contiguous()
    return found


def interleave(
    weights: Mapping[str, Tensor], head_dim: int, *, back: bool = False
) -> dict[str, Tensor]:
    """Query and key rows reordered from half-split to interleaved rotary pairs (`back`: inverse).

    Half-split turns channels (i, i + k/2) together, interleaved (2i, 2i + 1). Biases and the norm
    of queries and keys have channels too, and move along.
    """
    order = torch.arange(head_dim).view(2, -1).T.flatten()
    if back:
        order = order.argsort()
    turns = re.compile(r"layers\.\d+\.attn\.(q|k|q_norm|k_norm)\.(weight|bias)")
    return {
        name: tensor.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)
        if turns.fullmatch(name)
        else tensor
        for name, tensor in weights.items()
    }


def config_of(theirs: Any) -> Decoder.Config:
    """Our config of the model that a Hugging Face config describes."""
    if theirs.model_type == "gpt2":
        return Decoder.Config(
            dim=theirs.n_embd,
            n_layers=theirs.n_layer,
            n_heads=theirs.n_head,
            context=theirs.n_positions,
            vocab_size=theirs.vocab_size,
            attn=GQA.Config(n_kv_heads=theirs.n_head, qkv_bias=True, out_bias=True),
            pos=Learned.Config(),
            norm=LayerNorm.Config(eps=theirs.layer_norm_epsilon),
            ffn=MLP.Config(hidden=theirs.n_inner, bias=True, activation=Activation.gelu_tanh),
        )
    biased = getattr(theirs, "attention_bias", False)
    windowed = getattr(theirs, "use_sliding_window", True)
    return Decoder.Config(
        dim=theirs.hidden_size,
        n_layers=theirs.num_hidden_layers,
        n_heads=theirs.num_attention_heads,
        head_dim=getattr(theirs, "head_dim", None),
        context=theirs.max_position_embeddings,
        vocab_size=theirs.vocab_size,
        tie_embeddings=theirs.tie_word_embeddings,
        attn=GQA.Config(
            n_kv_heads=theirs.num_key_value_heads,
            window=getattr(theirs, "sliding_window", None) if windowed else None,
            qk_norm=theirs.model_type == "qwen3",
            qkv_bias=biased or theirs.model_type == "qwen2",
            out_bias=biased,
        ),
        pos=RoPE.Config(theta=theirs.rope_parameters["rope_theta"]),
        norm=RMSNorm.Config(eps=theirs.rms_norm_eps),
        ffn=SwiGLU.Config(hidden=theirs.intermediate_size, bias=getattr(theirs, "mlp_bias", False)),
    )


def twin(theirs: nn.Module, *, interleaved: bool = False) -> Decoder:
    """Our decoder with the weights of a Hugging Face model, in evaluation mode."""
    config = config_of(theirs.config)
    dims = config.dims()
    weights = renamed(theirs.state_dict(), TABLES[theirs.config.model_type])
    if config.tie_embeddings:
        weights["head.weight"] = weights["embed.weight"]
    if interleaved:
        assert isinstance(config.pos, RoPE.Config)
        config.pos.interleaved = True
        weights = interleave(weights, dims.head_dim)
    ours = Decoder(config, dims)
    ours.load_state_dict(weights, strict=True)
    return ours.eval()
