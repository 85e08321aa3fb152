"""Milliseconds and megabytes of every part of a composed model, run for real."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from txlab.objectives.linear_ce import linear_ce_sum
from txlab.objectives.next_token import NextToken
from txlab.train.cost import Table, autocast, batch_of, fresh, megabytes
from txlab.train.memory import Saved

if TYPE_CHECKING:
    from txlab.schema import Config

ROUNDS = 5
"""Repetitions of a measured part; the median is told."""


def measured(config: "Config") -> Table:
    """Milliseconds and kept megabytes of every part, run for real on this CPU."""
    model: Any = fresh(config).train()
    goal, batch = NextToken(NextToken.Config()), batch_of(config)
    tokens = torch.randint(model.dims.vocab_size, batch["tokens"].shape)
    batch = {"tokens": tokens, "labels": tokens}
    lines: list[tuple[str, ...]] = [("part", "forward ms", "backward ms", "MiB kept", "times")]
    seen: dict[str, tuple[nn.Module, Any]] = {}
    wanted = {names[0]: len(names) for names in kinds(model)}
    for path in wanted:
        part = model.get_submodule(path)
        part.register_forward_pre_hook(
            lambda m, args, path=path: seen.setdefault(path, (m, args)) and None
        )

    def head(states: Tensor) -> Tensor:
        return linear_ce_sum(states.flatten(0, 1), model.head.weight, tokens.flatten())[0]

    with autocast(config, "cpu"):
        states = model(tokens).states
        for path, (part, args) in seen.items():
            name = path.replace(".residual", ", all of it")
            lines.append((name, *timed(model, part, args), str(wanted[path])))
        lines.append(("head, loss", *timed(model, head, (states,)), "1"))
    lines.append(("whole step, no update", *step(model, goal, batch, config), "1"))
    return f"measured on {torch.get_num_threads()} CPU threads, one micro-batch", lines


def kinds(model: Any) -> list[list[str]]:
    """Paths of the parts of all layers and of what stands beside them, those that are alike
    together; the residual rule holds the whole of its layer."""
    found: dict[Any, list[str]] = {}
    for number, block in enumerate(model.layers):
        for name, part in block.named_children():
            whole = block if name == "residual" else part
            key = name, str(whole), tuple(p.shape for p in whole.parameters())
            found.setdefault(key, []).append(f"layers.{number}.{name}")
    beside = [[n] for n, _ in model.named_children() if n not in ("layers", "head")]
    return [*found.values(), *beside]


def timed(model: nn.Module, part: Callable[..., Any], args: Any) -> tuple[str, str, str]:
    """Median milliseconds of a part on its own inputs, and what it keeps."""
    forward, backward, kept = [], [], 0
    for _ in range(ROUNDS):
        own = [a.detach().requires_grad_() if is_float(a) else a for a in args]
        begin = time.perf_counter()
        with Saved(model) as saved:
            made = part(*own)
        forward.append(time.perf_counter() - begin)
        kept = saved.bytes
        y = made[0] if isinstance(made, tuple) else made
        begin = time.perf_counter()
        y.sum().backward()
        backward.append(time.perf_counter() - begin)
        model.zero_grad(set_to_none=True)
    return milliseconds(forward), milliseconds(backward), megabytes(kept)


def step(model: Any, goal: NextToken, batch: Any, config: "Config") -> tuple[str, str, str]:
    forward, backward, kept = [], [], 0
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        with Saved(model) as saved, autocast(config, "cpu"):
            loss = goal(model, batch)
        forward.append(time.perf_counter() - begin)
        kept = saved.bytes
        begin = time.perf_counter()
        loss.sum.backward()
        backward.append(time.perf_counter() - begin)
        model.zero_grad(set_to_none=True)
    return milliseconds(forward), milliseconds(backward), megabytes(kept)


def milliseconds(seconds: list[float]) -> str:
    return f"{sorted(seconds)[len(seconds) // 2] * 1e3:.2f}"


def is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
