"""Tensor parallelism by role: which linear is cut by its outputs, which by its inputs.

A branch is entered with the same x on all ranks. Its first linears are cut by output (column): each
rank computes its own heads or hidden units. Its last one is cut by input (row): the ranks' results
are summed. Embedding and head are cut by the vocabulary. Everything else is whole on every rank.
"""

from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn import functional as F

from txlab.nn.attention.softmax import SoftmaxAttention
from txlab.nn.block import Block
from txlab.nn.collectives import entered, joined, summed
from txlab.nn.ffn.perceptron import Perceptron


@dataclass
class Split:
    """What was done to a network."""

    mesh: DeviceMesh
    partial: list[tuple[nn.Module, str]] = field(default_factory=list)
    """Owner and attribute of parameters that are whole on every rank, but meet only its own heads:
    their gradients are parts of a sum."""

    def in_part(self) -> list[nn.Parameter]:
        """Those parameters as they are now."""
        found = [getattr(owner, name) for owner, name in self.partial]
        return [p for p in found if p is not None and p.requires_grad]


def split(network: Any, mesh: DeviceMesh) -> Split:
    """Cut `network` over the ranks of `mesh`, in place; `refusal` has been asked before."""
    made = Split(mesh)
    for block in network.layers:
        _split_attention(block.attn, made)
        _split_perceptron(block.ffn, made)
    for scheme in {id(s): s for s in network.layers.schemes()}.values():
        if scheme.scores:
            _split_scores(scheme, network.dims.n_heads, made)
    tied = network.head.weight is network.embed.weight
    _cut(network.embed, "weight", 0, mesh)
    network.embed.forward = MethodType(_looked_up, network.embed)
    if tied:
        network.head.weight = network.embed.weight
    else:
        _cut(network.head, "weight", 0, mesh)
    network.head.forward = MethodType(_scored, network.head)
    for part in (network.embed, network.head):
        part.tensor_mesh = mesh
    return made


def _split_attention(attn: SoftmaxAttention, made: Split) -> None:
    n = made.mesh.size()
    attn.register_forward_pre_hook(lambda _, args: (entered(args[0], made.mesh), *args[1:]))
    _column(attn.q, made)
    for linear in (attn.k, attn.v):
        if attn.n_kv_heads > 1:
            _column(linear, made)
        else:  # one for all queries, wherever these are
            made.partial += _inside(linear)
    if attn.gate is not None:
        _column(attn.gate, made)
    for norm in (attn.q_norm, attn.k_norm):
        if norm is not None:
            made.partial += [(norm, name) for name, _ in norm.named_parameters()]
    _row(attn.o, made)
    attn.n_heads //= n
    attn.n_kv_heads = max(attn.n_kv_heads // n, 1)


def _split_perceptron(ffn: Perceptron, made: Split) -> None:
    ffn.register_forward_pre_hook(lambda _, args: (entered(args[0], made.mesh), *args[1:]))
    for name in ffn.in_linears:
        _column(getattr(ffn, name), made)
    _row(ffn.down, made)


def _split_scores(scheme: Any, n_heads: int, made: Split) -> None:
    """Have a scheme that biases scores count this rank's heads from where they start."""
    first = made.mesh.get_local_rank() * (n_heads // made.mesh.size())
    score = scheme.score
    scheme.score = lambda h, q, k: score(h + first, q, k)
    made.partial += _inside(scheme)


def _column(linear: nn.Module, made: Split) -> None:
    """Cut a linear by its outputs, and its adapter where it has one: B's rows go with them."""
    if isinstance(linear, nn.Linear):
        _localise(linear, made.mesh, weight=0, bias=0)
        return
    base, down, up = _low_rank(linear)
    _localise(base, made.mesh, weight=0, bias=0)
    _localise(up, made.mesh, weight=0, bias=0)
    made.partial += _inside(down)


def _row(linear: nn.Module, made: Split) -> None:
    """Cut a linear by its inputs; the sum of the ranks' outputs, and the bias once, come after."""
    base: Any = linear
    if not isinstance(linear, nn.Linear):
        base, down, up = _low_rank(linear)
        _localise(down, made.mesh, weight=1)
        made.partial += _inside(up)
    _localise(base, made.mesh, weight=1)

    def after(_: nn.Module, args: Any, y: Tensor) -> Tensor:
        y = summed(y, made.mesh)
        return y if base.bias is None else y + base.bias.to(y.dtype)

    linear.register_forward_hook(after)


def _low_rank(layer: Any) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    """The base, A and B of a linear that peft has given a low-rank update."""
    (name,) = layer.lora_A
    return layer.base_layer, layer.lora_A[name], layer.lora_B[name]


def _localise(linear: Any, mesh: DeviceMesh, **cuts: int) -> None:
    """Cut a linear's tensors along these axes, and have it compute with this rank's part."""
    for name, axis in cuts.items():
        if getattr(linear, name) is not None:
            _cut(linear, name, axis, mesh)
    linear.forward = MethodType(_local if "bias" in cuts else _local_without_bias, linear)


def _cut(owner: nn.Module, name: str, axis: int, mesh: DeviceMesh) -> None:
    old = getattr(owner, name)
    new = distribute_tensor(old.detach(), mesh, [Shard(axis)], src_data_rank=None)
    setattr(owner, name, nn.Parameter(new, requires_grad=old.requires_grad))


def _inside(module: nn.Module) -> list[tuple[nn.Module, str]]:
    return [(m, name) for m in module.modules() for name, _ in m.named_parameters(recurse=False)]


def _part(tensor: Tensor | None) -> Tensor | None:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _local(self: Any, x: Tensor) -> Tensor:
    weight = _part(self.weight)
    assert weight is not None
    return F.linear(x, weight, _part(self.bias))


def _local_without_bias(self: Any, x: Tensor) -> Tensor:
    weight = _part(self.weight)
    assert weight is not None
    return F.linear(x, weight)


def _looked_up(self: Any, tokens: Tensor) -> Tensor:
    """Embeddings: each rank has those of its share of the vocabulary, and zeros for the others."""
    weight = _part(self.weight)
    assert weight is not None
    own = tokens - self.tensor_mesh.get_local_rank() * len(weight)
    there = (own >= 0) & (own < len(weight))
    x = F.embedding(own.where(there, 0), weight)
    return summed(torch.where(there.unsqueeze(-1), x, 0.0), self.tensor_mesh)


def _scored(self: Any, states: Tensor) -> Tensor:
    """Logits of the whole vocabulary."""
    return joined(_local(self, entered(states, self.tensor_mesh)), self.tensor_mesh)


def refusal(network: Any, n: int) -> str | None:
    """Why `network` cannot be cut over `n` ranks, naming the option; None where it can."""
    for block in network.layers:
        reason = _refuse_block(block, network.dims.n_heads, n)
        if reason is not None:
            return reason
    size = network.dims.vocab_size
    if size % n:
        more = size + n - size % n
        return f"model.vocab_size={size} does not divide by it: give model.vocab_size={more}"
    return None


def _refuse_block(block: Block, n_heads: int, n: int) -> str | None:
    attn, ffn = block.attn, block.ffn
    if not isinstance(attn, SoftmaxAttention) or not _plain(attn):
        return (
            f"model.attn={_name(attn)} cannot be cut by heads: use mha, mqa, gqa, swa, flash or "
            "bigbird"
        )
    if attn.sink_logit is not None:
        return "model.attn.sink_logit cannot be cut by heads: leave it out"
    if n_heads % n:
        return f"model.n_heads={n_heads} does not divide by it"
    if attn.n_kv_heads > 1 and attn.n_kv_heads % n:
        return f"model.attn.n_kv_heads={attn.n_kv_heads} does not divide by it (1 does)"
    if not isinstance(ffn, Perceptron) or type(ffn).forward is not Perceptron.forward:
        return f"model.ffn={_name(ffn)} cannot be cut: use a perceptron, such as swiglu or mlp"
    if ffn.hidden % n:
        return f"model.ffn.hidden={ffn.hidden} does not divide by it"
    for linear in (*attn.children(), *ffn.children()):
        if hasattr(linear, "base_layer") and not _is_lora(linear):
            return "only adapter=lora and none can be cut"
    return None


def _plain(attn: SoftmaxAttention) -> bool:
    """Whether an option computes with its heads as softmax attention itself does."""
    own = ("forward", "attend", "out", "make_linears")
    return all(getattr(type(attn), name) is getattr(SoftmaxAttention, name) for name in own)


def _is_lora(layer: Any) -> bool:
    adapted = getattr(layer, "lora_A", {})
    special = getattr(layer, "lora_magnitude_vector", {})
    return len(adapted) == 1 and not special and isinstance(layer.base_layer, nn.Linear)


def _name(option: Any) -> str:
    config = getattr(type(option), "Config", None)
    return getattr(config, "name", None) or type(option).__name__.lower()
