"""Says where two runs part: a table of steps, then the verdict in a few lines."""

from collections.abc import Sequence

from txlab.train.divergence import Comparison, Step, Tensors, shown

BEHIND = 10.0
"""The weights have to move this many times the tolerance, or a comparison says little."""

WIDTH = 100
"""Columns of the table, at least."""
RARE = 0.01
"""Share of a tensor's elements up to which those apart are few."""


def say(found: Comparison, stops: Sequence[int] = ()) -> None:
    """Print table and verdict."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    grid = Table(title="step by step", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("step", "loss A", "loss B", "apart", "tensors"):
        grid.add_column(head, justify="right")
    grid.add_column("furthest apart", no_wrap=True)
    grid.add_column("by, of its largest", justify="right", no_wrap=True)
    for step in shown(found.steps, found.first):
        if step is None:
            grid.add_row(*["..."] * 7)
        else:
            bad = step.differs(found.tolerance)
            grid.add_row(*cells(step, found.tolerance), style="bold red" if bad else None)
    wide = max(Console().width, WIDTH)
    Console(highlight=False, width=wide).print(grid)
    for line in verdict(found, stops):
        print(line)


def cells(step: Step, tolerance: float) -> list[str]:
    """One step as the table has it."""
    name = "start" if step.number == 0 else str(step.number)
    losses = [number(loss, "{:.5f}") for loss in step.losses]
    loss_apart = "" if step.losses == (None, None) else far(step.loss_apart)
    if step.apart is None:
        tensors, name_of, by = "not kept", "", ""
    else:
        tensors = f"{len(step.beyond(tolerance))} of {step.tensors}"
        most = max(step.apart.items(), key=lambda one: one[1].relative, default=None)
        name_of, by = ("", "0") if most is None else (most[0], f"{most[1].relative:.1e}")
    label = f"{name}, resumed" if step.resumed else name
    return [label, *losses, loss_apart, tensors, name_of, by]


def verdict(found: Comparison, stops: Sequence[int] = ()) -> list[str]:
    """Whether they are equal; else where they part first, how far, and how they end."""
    how = "to the bit" if found.tolerance == 0 else f"within {found.tolerance:g}"
    count = f"{found.steps[-1].number} steps" if found.steps else "no step"
    lines = []
    if found.lengths[0] != found.lengths[1]:
        lines.append(
            f"different    A has made {found.lengths[0]} steps and B {found.lengths[1]}: give both "
            "the same train.steps, tokens or epochs."
        )
    first = found.first
    if first is not None:
        lines.append(f"different    {parting(first, found.tolerance)}")
        ends = f"within {found.tolerance:g}" if found.ends_equal else "different"
        lines.append(f"at the end   {ends if found.tolerance else 'different'}")
    elif not lines:
        resumed = f", B resumed after {', '.join(map(str, stops))}" if stops else ""
        lines.append(f"equal        {how}, after each of {count}{resumed}")
    if first is not None and (rare := rare_elements(first, found.tolerance)):
        lines.append(rare)
    worst = found.worst
    if worst is None:
        lines.append("largest      every weight of every step is the same to the bit")
    else:
        step, name, tensor = worst
        lines.append(f"largest      {name} at step {step.number}: {difference(tensor)}")
    if (loss := found.worst_loss).loss_apart:
        lines.append(f"             loss at step {loss.number}: {far(loss.loss_apart)}")
    if worst is not None and found.tolerance and first is None and worst[2].moved:
        tensor = worst[2]
        if tensor.moved < BEHIND * found.tolerance * tensor.scale:
            lines.append(
                f"note         it has moved by {tensor.moved:.1e} only: {found.tolerance:g} says "
                "little, give more steps, a shorter schedule.warmup or a smaller tolerance"
            )
    return lines


def parting(step: Step, tolerance: float) -> str:
    """The step at which two runs part, in words."""
    where = "at the start" if step.number == 0 else f"from step {step.number} on"
    where = f"where B goes on after step {step.number}" if step.resumed else where
    said = []
    if step.loss_beyond(tolerance):
        a, b = (number(loss, "{:.8g}") for loss in step.losses)
        said.append(f"the loss is {a} and {b}, {far(step.loss_apart)} apart")
    beyond = step.beyond(tolerance)
    if beyond:
        name, tensor = next(iter(beyond.items()))
        others = f", {len(beyond) - 1} other tensors of {step.tensors} as well"
        said.append(f"{name} by {difference(tensor)}{others if len(beyond) > 1 else ''}")
    norms = [side.get("grad_norm") for side in step.figures]
    if all(norm is not None for norm in norms):
        said.append("gradient norms " + " and ".join(number(n, "{:.8g}") for n in norms))
    return f"{where}: {'; '.join(said)}"


def rare_elements(step: Step, tolerance: float) -> str:
    """A hint where only a few elements are apart: rounding, made into steps by an optimizer."""
    tensors = step.beyond(tolerance).values()
    few, all_of = sum(t.beyond_it for t in tensors), sum(t.of for t in tensors)
    if not tolerance or step.loss_beyond(tolerance) or not few or few > RARE * all_of:
        return ""
    return (
        f"note         only {few:,} of {all_of:,} elements of these tensors: an optimizer that "
        "divides by a gradient's size makes rounding of one near 0 into a step; optim=sgd or a "
        "larger optim.eps tells whether it is that"
    )


def difference(tensor: Tensors) -> str:
    """How far apart, as a number and as a share; elements where the numbers are the same."""
    if tensor.largest == 0:
        return "the same but for the sign of a zero or the bits of a NaN"
    share = f", {tensor.relative:.1e} of its largest" if tensor.scale else ""
    return f"{tensor.largest:.2e}{share}, {tensor.elements:,} of {tensor.of:,} elements"


def far(value: float) -> str:
    """A difference."""
    return "0" if value == 0 else f"{value:.2e}"


def number(value: float | None, form: str) -> str:
    """A figure of the log, or that there is none."""
    return "-" if value is None else form.format(value)
