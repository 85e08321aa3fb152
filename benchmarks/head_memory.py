"""Peak memory of head and loss at a large vocabulary, beside logits made whole.

    python -m benchmarks.head_memory [--tokens 8192] [--vocab 50304] [--dim 768] [--dtype float32]

Forward and backward of the head with its cross-entropy alone, each way in a fresh process: the
most memory above that of the states and weights. What the gradients themselves take is told, too:
no way of computing them can do with less. The losses are printed, so that they can be compared.
"""

import argparse
import subprocess
import sys
from pathlib import Path

NAMES = ("tokens", "vocab", "dim", "dtype")
WAYS = ("ours", "logprobs", "naive")


def status(field: str) -> float:
    """A line of this process's memory, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def measured(way: str, tokens: int, vocab: int, dim: int, dtype: str) -> None:
    """One way in this process: its peak above what it starts from, and its loss."""
    import torch
    from torch.nn import functional as F

    from txlab.objectives.linear_ce import linear_ce_sum
    from txlab.objectives.token_logprobs import token_logprobs

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    states = torch.randn(tokens, dim, dtype=kind).requires_grad_()
    weight = (torch.randn(vocab, dim, dtype=kind) / dim**0.5).requires_grad_()
    labels = torch.randint(vocab, (tokens,))
    small = torch.zeros(8, dim, dtype=kind).requires_grad_()  # the kernels' own buffers
    F.cross_entropy(F.linear(small, weight[:64]).float(), labels[:8] % 64).backward()
    weight.grad = None
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    if way == "naive":
        loss = F.cross_entropy(F.linear(states, weight).float(), labels)
    elif way == "ours":
        loss = linear_ce_sum(states, weight, labels)[0] / tokens
    else:
        loss = -token_logprobs(states, weight, labels).sum() / tokens
    loss.backward()
    grads = sum(t.numel() * t.element_size() for t in (states, weight)) / 2**20
    print(f"{status('VmHWM') - before:.1f} {grads:.1f} {loss.item():.6f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    given = [args.tokens, args.vocab, args.dim, args.dtype]
    if args.child:
        measured(args.child, *given)
        return
    flags = [f"--{name}={value}" for name, value in zip(NAMES, given, strict=True)]
    found = {}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.head_memory", f"--child={way}", *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[way] = [float(word) for word in done.stdout.split()]
    naive, gradients, _ = found["naive"]
    print(f"gradients of states and weight: {gradients:,.0f} MiB")
    for way, (peak, _, loss) in found.items():
        beyond = (naive - gradients) / max(peak - gradients, 1)
        print(
            f"{way:9s} {peak:8,.0f} MiB   naive takes {naive / peak:4.1f}x; "
            f"beyond the gradients {beyond:5.1f}x   loss {loss:.6f}"
        )


if __name__ == "__main__":
    main()
