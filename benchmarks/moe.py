"""Milliseconds of a mixture of experts beside the dense layer of as many FLOPs a token, and peers.

    python -m benchmarks.moe [--dim 512] [--hidden 768] [--tokens 2048] [--dtype fp32|bf16]

Forward and backward, interleaved in one process; read the ratios of one run, never two runs side by
side. `--threads 1` takes the time that the thread had the processor, which a busy machine spoils
less than the clock. transformers' block needs `pip install -e '.[bench]'`; without it, it
is left out.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.ffn import MoE, SwiGLU
from txlab.testing.probes import FFNProbe


def ours(args: argparse.Namespace, dims: Dims) -> nn.Module:
    config = MoE.Config(n_experts=args.experts, top_k=args.top_k, hidden=args.hidden)
    return FFNProbe(MoE(config, dims), dims)


def dense(args: argparse.Namespace, dims: Dims) -> nn.Module:
    """As many active FLOPs: one layer of top_k times the width."""
    return FFNProbe(SwiGLU(SwiGLU.Config(hidden=args.top_k * args.hidden), dims), dims)


def mixtral(args: argparse.Namespace, dims: Dims) -> nn.Module:
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(
        hidden_size=args.dim,
        intermediate_size=args.hidden,
        num_local_experts=args.experts,
        num_experts_per_tok=args.top_k,
    )
    config._experts_implementation = args.experts_implementation
    block = MixtralSparseMoeBlock(config)
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=args.dim**-0.5)
    return block


LAYERS: dict[str, Callable[[Any, Dims], nn.Module]] = {
    "dense": dense,
    "txlab moe": ours,
    "transformers Mixtral": mixtral,
}


def step(layer: nn.Module, x: Tensor, grad: Tensor, low: bool) -> float:
    """Seconds of one forward and backward pass."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    layer.zero_grad(set_to_none=True)
    begin = clock()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        y = layer(x)
    y.backward(grad.to(y.dtype))
    return clock() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--experts-implementation", default="eager")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    dims = Dims(args.dim, 8, args.dim // 8, 1, args.tokens, 8)
    layers: dict[str, nn.Module] = {}
    for name, make in LAYERS.items():
        try:
            layers[name] = make(args, dims)
        except ImportError as error:
            print(f"{name}: left out, not installed ({error})")
    x = torch.randn(1, args.tokens, args.dim, requires_grad=True)
    grad = torch.randn_like(x)
    times: dict[str, list[float]] = {name: [] for name in layers}
    order = list(layers)
    for round_ in range(args.rounds + 2):
        for name in order:
            seconds = step(layers[name], x, grad, args.dtype == "bf16")
            if round_ > 1:
                times[name].append(seconds)
        order = order[1:] + order[:1]
    print(
        f"{args.experts} experts, top {args.top_k}, dim {args.dim}, hidden {args.hidden}, "
        f"{args.tokens} tokens, {args.dtype}, {args.threads} threads, forward and backward"
    )
    for name, values in times.items():
        ratio = statistics.median(a / b for a, b in zip(values, times["dense"], strict=True))
        print(f"{name:22s} {statistics.median(values) * 1e3:8.1f} ms  {ratio:5.2f} of dense")


if __name__ == "__main__":
    main()
