"""Weights of Hugging Face's decoders under our names: one table of name patterns a family.

A pattern's `{}` is the layer number. What is not in the table is an error, never left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from txlab.core.errors import RequestError


@dataclass(frozen=True)
class Row:
    """A tensor of theirs and the one, or the several that split its outputs evenly, of ours."""

    theirs: str
    ours: tuple[str, ...]
    conv1d: bool = False
    """Stored as [in, out] (GPT-2's Conv1D), where a linear has [out, in]."""

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        """Views on their tensor as the tensors of ours."""
        return (tensor.T if self.conv1d else tensor).chunk(len(self.ours))

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Their tensor out of ours."""
        whole = parts[0] if len(parts) == 1 else torch.cat(list(parts))
        return whole.T if self.conv1d else whole


@dataclass(frozen=True)
class Table:
    """A family's tensors."""

    rows: Sequence[Row]
    prefix: str
    """What their names begin with, but for the head's; files of bare bodies leave it out."""
    head: str = "lm_head.weight"
    """The output head, which files of tied models may leave out."""
    constants: str = r"(?!)"
    """Pattern of the names of tensors that hold no weights: tables that code makes anew."""


def row(theirs: str, *ours: str, conv1d: bool = False) -> Row:
    return Row(theirs, ours, conv1d)


def both(theirs: str, *ours: str, conv1d: bool = False) -> list[Row]:
    """The rows of a layer's weight and of its bias, which may be absent; no Conv1D has a matrix
    for a bias."""
    return [
        row(f"{theirs}.weight", *(f"{name}.weight" for name in ours), conv1d=conv1d),
        row(f"{theirs}.bias", *(f"{name}.bias" for name in ours)),
    ]


GPT2 = Table(
    [
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
    ],
    prefix="transformer.",
    constants=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
)
LLAMA = Table(
    [
        row("model.embed_tokens.weight", "embed.weight"),
        row("model.layers.{}.input_layernorm.weight", "layers.{}.residual.norms.attn.weight"),
        *(
            entry
            for part in "qkvo"
            for entry in both(
                f"model.layers.{{}}.self_attn.{part}_proj", f"layers.{{}}.attn.{part}"
            )
        ),
        *(
            row(f"model.layers.{{}}.self_attn.{part}.weight", f"layers.{{}}.attn.{part}.weight")
            for part in ("q_norm", "k_norm")
        ),
        row(
            "model.layers.{}.post_attention_layernorm.weight",
            "layers.{}.residual.norms.ffn.weight",
        ),
        *(
            entry
            for part in ("gate", "up", "down")
            for entry in both(f"model.layers.{{}}.mlp.{part}_proj", f"layers.{{}}.ffn.{part}")
        ),
        row("model.norm.weight", "norm.weight"),
        row("lm_head.weight", "head.weight"),
    ],
    prefix="model.",
    constants=r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
)
TABLES = {"llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "gpt2": GPT2}
"""By Hugging Face's `model_type`."""


def table_of(family: str) -> Table:
    """The table of a `model_type`; RequestError where there is none."""
    if family not in TABLES:
        raise RequestError(f"model_type {family!r} is not supported; {', '.join(TABLES)} are.")
    return TABLES[family]


def pairs(names: Iterable[str], table: Table) -> Iterator[tuple[str, tuple[str, ...], Row]]:
    """(their name, our names, row) of all of our `names`; RequestError for one without a row."""
    left = set(names)
    for entry in table.rows:
        pattern = re.compile(re.escape(entry.ours[0]).replace(r"\{\}", r"(\d+)"))
        for hit in [hit for name in left if (hit := pattern.fullmatch(name))]:
            ours = tuple(name.format(*hit.groups()) for name in entry.ours)
            left -= set(ours)
            yield entry.theirs.format(*hit.groups()), ours, entry
    if left:
        raise RequestError(f"no place in a model of theirs for {', '.join(sorted(left))}.")


def interleave(
    weights: Mapping[str, Tensor], head_dim: int, *, back: bool = False
) -> dict[str, Tensor]:
    """Query and key rows reordered from half-split to interleaved rotary pairs (`back`: inverse).

    Half-split turns channels (i, i + k/2) together, interleaved (2i, 2i + 1). Biases and the norm
    of queries and keys have channels too, and move along. Names are ours.
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
