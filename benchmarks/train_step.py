"""Tokens per second of one train step, txlab beside its peers, interleaved in one process.

    python -m benchmarks.train_step [--shape small] [--dtype fp32|bf16] [--compile] [--rounds 7]

Noise here is large: read the medians and the ratios of one run, never two runs side by side.
Peers need `pip install -e '.[bench]'`; a peer that is not installed is named and left out.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.peers import PEERS, SHAPES


def make_step(name: str, args: argparse.Namespace) -> tuple[Callable[[], float], int]:
    """One whole train step (forward, backward, AdamW) of peer `name`, and its parameter count."""
    torch.manual_seed(0)
    shape = SHAPES[args.shape]
    model, loss = PEERS[name](shape)
    model.train()
    if args.compile:
        if name == "txlab":
            for layer in model.layers:
                layer.compile()
        else:
            loss = torch.compile(loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randint(0, shape.vocab, (shape.batch, shape.seq))

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            value = loss(x)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.item()

    return step, sum(p.numel() for p in model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="small", choices=SHAPES)
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", default=",".join(PEERS))
    args = parser.parse_args()
    steps, sizes, losses = {}, {}, {}
    for name in args.peers.split(","):
        try:
            steps[name], sizes[name] = make_step(name, args)
        except ImportError as error:
            print(f"{name}: left out, not installed ({error})")
            continue
        losses[name] = steps[name]()
        steps[name]()
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    for _ in range(args.rounds):
        for name in order:
            begin = time.perf_counter()
            steps[name]()
            times[name].append(time.perf_counter() - begin)
        order = order[1:] + order[:1]
    medians = {name: statistics.median(values) for name, values in times.items()}
    best = min(medians.values())
    shape = SHAPES[args.shape]
    print(f"{args.shape} {shape} {args.dtype} {'compiled' if args.compile else 'eager'}")
    for name, seconds in sorted(medians.items(), key=lambda item: item[1]):
        print(
            f"{name:15s} {shape.batch * shape.seq / seconds:8.0f} tokens/s"
            f"  {best / seconds:5.2f} of the fastest  {sizes[name] / 1e6:.2f}M parameters"
            f"  first loss {losses[name]:.3f}"
        )


if __name__ == "__main__":
    main()
