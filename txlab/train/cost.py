"""The cost of a config as tables: totals, parts, shapes through a layer."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from txlab.models.flops import decode_flops, mixers, mixing, parameters, train_flops, weight_flops
from txlab.nn.attention import CrossAttention
from txlab.nn.cache import LayerCache
from txlab.train.memory import Saved, optimizer_bytes, without_numbers
from txlab.train.recompute import Dear, recompute_blocks

if TYPE_CHECKING:
    from txlab.schema import Config

Table = tuple[str, list[tuple[str, ...]]]


def report(config: "Config") -> list[Table]:
    """Parameters, FLOPs, cache and memory; nothing of it takes memory or time."""
    from txlab.train.optim import optim

    context = config.model.context
    with without_numbers():
        model: Any = fresh(config)
        state = optimizer_bytes(model, optim.build(config.optim).make)
        again = recomputed_bytes(model.train(), config)
        activations, head = activation_bytes(model, config)
    total, active = parameters(model)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    weights = sum(p.nbytes for p in model.parameters())
    gradients = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    kind = cache_dtype(config)
    size, rows = cache_bytes(model, context, kind), micro_batch(config)
    name = str(kind).removeprefix("torch.")
    totals: list[tuple[str, ...]] = [
        ("parameters", f"{total:,}", f"{active:,} of them met by a token, {trained:,} trained"),
        ("train", f"{train_flops(model, context):,.0f}", f"FLOPs a token at {context:,} tokens"),
        (
            "decode",
            f"{decode_flops(model, context):,.0f}",
            f"FLOPs of the last of {context:,} tokens",
        ),
        ("cache", f"{size[0]:,}", f"bytes a token, {name}"),
        ("", f"{size[1]:,}", f"bytes for a row of {context:,} tokens"),
        ("weights", megabytes(weights), "MiB"),
        ("gradients", megabytes(gradients), "MiB"),
        ("optimizer", megabytes(state), f"MiB, state of {config.optim.name}"),
        ("activations", megabytes(activations), f"MiB for {rows} x {context:,} tokens"),
        ("head, loss", megabytes(head), "MiB beside"),
    ]
    if again:
        totals.append(("recomputed", megabytes(again), "MiB beside, of one layer at a time"))
    return [("cost", totals), ("parts", [*parts(model, context)])]


def fresh(config: "Config") -> Any:
    """The model with its adapter, as initialised; without a seed, which tensors without numbers
    cannot take."""
    from txlab.models import model_slot
    from txlab.nn.adapter import adapter

    model = model_slot.build(config.model, config.model.dims())
    adapter.build(config.adapter).inject(model)
    return model


def parts(model: Any, context: int) -> Iterator[tuple[str, ...]]:
    """Parameters and forward FLOPs a token of each part; equal layers are one line."""
    yield "part", "parameters", "met by a token", "forward FLOPs a token", "times"
    beside = dict(zip(mixers(model), mixing(model, context), strict=True))
    rows: dict[tuple[str, ...], list[int]] = {}
    for number, block in enumerate(model.layers):
        for name, part in block.named_children():
            flops = weight_flops(part) + beside.get(part, 0.0)
            kind = getattr(getattr(part, "config", None), "name", type(part).__name__.lower())
            row = (f"{name} {kind}", *counts(part, flops))
            rows.setdefault(row, []).append(number)
    for name, part in model.named_children():
        if name != "layers":
            yield name, *counts(part, weight_flops(part)), "1"
    for row, numbers in rows.items():
        yield f"layers.{numbers[0]} {row[0]}", *row[1:], str(len(numbers))


def counts(part: nn.Module, flops: float) -> tuple[str, str, str]:
    total, active = parameters(part)
    return f"{total:,}", f"{active:,}", f"{flops:,.0f}"


def megabytes(count: int) -> str:
    return f"{count / 2**20:,.1f}"


def micro_batch(config: "Config") -> int:
    """Rows that are in memory at once."""
    return config.data.micro_batch_size or config.data.batch_size


def cache_dtype(config: "Config") -> torch.dtype:
    """What keys and values are kept in where the model runs as it was trained."""
    precision = config.train.precision
    if precision.startswith("bf16"):
        return torch.bfloat16
    return torch.float16 if precision.startswith("16") else torch.float32


def cache_bytes(model: Any, context: int, dtype: torch.dtype) -> tuple[int, int]:
    """(bytes of one more token, bytes of all that a row of `context` tokens holds).

    A window, a recurrent state, the keys of a memory (of `context` tokens as well) and the like end
    to grow: their own size is told, without the spare slots that a cache may have.
    """
    meta = torch.device("meta")
    per_token, whole = 0, 0
    for mixer in mixers(model):
        if isinstance(mixer, CrossAttention):
            whole += mixer.memory_bytes(context, dtype)
            continue
        full = mixer.new_cache(1, context, meta, dtype)
        none = mixer.new_cache(1, 0, meta, dtype)
        per_token += full.bytes_per_token()
        whole += storage(full) - (storage(none) if full.bytes_per_token() else 0)
    return per_token, whole


def storage(cache: LayerCache) -> int:
    """Bytes of a layer's decoding state, that of caches inside it included."""
    found: dict[int, Tensor] = {}
    inside: list[LayerCache] = [cache]
    while inside:
        for value in vars(inside.pop()).values():
            if isinstance(value, Tensor):
                found[id(value)] = value
            elif isinstance(value, LayerCache):
                inside.append(value)
    return sum(tensor.nbytes for tensor in found.values())


def autocast(config: "Config", device: str) -> Any:
    low = torch.float16 if config.train.precision == "16-mixed" else torch.bfloat16
    return torch.autocast(device, low, enabled=config.train.precision.endswith("mixed"))


def batch_of(config: "Config") -> dict[str, Tensor]:
    rows, context = micro_batch(config), config.model.context
    ids = torch.zeros(rows, context, dtype=torch.long)
    return {"tokens": ids, "labels": ids}


def activation_bytes(model: Any, config: "Config") -> tuple[int, int]:
    """(what the body keeps for its backward pass, what head and loss keep).

    Layers whose activations are recomputed keep their input, or what the selective kind keeps.

    Our losses over the vocabulary make the gradients of states and head in the forward pass.
    """
    how = config.train.activation_checkpointing
    recompute_blocks(model, how)
    dear = Dear()
    selective = dear if how == "selective" else contextlib.nullcontext()
    with autocast(config, "cpu"), Saved(model) as body, selective:
        states = model(batch_of(config)["tokens"]).states
    return body.bytes + dear.bytes, states.nbytes + model.head.weight.nbytes


def recomputed_bytes(model: Any, config: "Config") -> int:
    """What the largest layer makes again in the backward pass, where activations are recomputed."""
    how, found = config.train.activation_checkpointing, [0]

    def counted(forward: Any) -> Any:
        def call(states: Tensor, *args: Any, **named: Any) -> Any:
            with Saved(model) as layer, Dear() as dear:
                made = forward(states, *args, **named)
            kept = states.nbytes + (dear.bytes if how == "selective" else 0)
            found.append(layer.bytes - kept)
            return made

        return call

    if how != "none":
        own = [block.forward for block in model.layers]
        for block in model.layers:
            block.forward = counted(block.forward)
        with autocast(config, "cpu"):
            model(batch_of(config)["tokens"])
        for block, forward in zip(model.layers, own, strict=True):
            block.forward = forward
    return max(found)


def trace(config: "Config") -> Table:
    """Shapes through the first layer: every module's input, output and weights."""
    lines: list[tuple[str, ...]] = [("module", "in", "out", "weights")]
    with without_numbers():
        model: Any = fresh(config)
        block = model.layers[0]
        for name, module in block.named_modules():
            module.register_forward_hook(
                lambda m, i, o, name=name: lines.append(row(name, m, i, o))
            )
        for backend in model.layers.kernels():
            watch(backend, lines)
        model(batch_of(config)["tokens"])
    dims, rows = model.dims, micro_batch(config)
    legend = (
        f"shapes through layers.0: b={rows} rows, t={dims.context} tokens, d={dims.dim}, "
        f"{dims.n_heads} heads of {dims.head_dim}, v={dims.vocab_size}"
    )
    return legend, lines


def watch(backend: Any, lines: list[tuple[str, ...]]) -> None:
    """Have the first call of a backend tell the shapes of heads."""
    attend = backend.attend

    def told(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **named: Any) -> Tensor:
        y = attend(q, k, v, *rest, **named)
        if backend.__dict__.pop("attend", None) is not None:
            lines.append((f"attend ({backend.name})", shapes((q, k, v)), shape(y), ""))
        return y

    backend.attend = told


def row(name: str, module: nn.Module, given: Any, made: Any) -> tuple[str, str, str, str]:
    own = (shape(p) for p in module.parameters(recurse=False))
    return name or "layer", shapes(given), shapes(made), " ".join(own)


def shapes(value: Any) -> str:
    values = value if isinstance(value, tuple | list) else (value,)
    return " ".join(shape(v) for v in values if isinstance(v, Tensor))


def shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"
