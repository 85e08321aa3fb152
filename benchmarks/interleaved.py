"""Steps timed in turn: a table of medians, each with its share of the first row's."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Make = Callable[[int], Callable[[], None]]
"""A length -> the step to time at it."""


def table(
    rows: Mapping[str, Make],
    lengths: Sequence[int],
    rounds: int,
    *,
    width: int,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Print the time of every row at every length; `width`: characters of a row's name."""
    print(f"{'row':{width}s}" + "".join(f"{f'T={length}':>20s}" for length in lengths))
    cells: dict[str, list[str]] = {name: [] for name in rows}
    for length in lengths:
        steps = {name: make(length) for name, make in rows.items()}
        times: dict[str, list[float]] = {name: [] for name in rows}
        for turn in range(rounds + 1):
            for name, step in steps.items():
                begin = clock()
                step()
                if turn:  # the first round warms up
                    times[name].append(clock() - begin)
        medians = {name: statistics.median(found) for name, found in times.items()}
        first = next(iter(medians.values()))
        for name, seconds in medians.items():
            cells[name].append(f"{seconds * 1e3:11.1f} ms {seconds / first:4.2f}x")
    for name, found in cells.items():
        print(f"{name:{width}s}" + "".join(f"{cell:>20s}" for cell in found))
