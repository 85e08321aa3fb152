"""Train two sets of overrides and say where they part: loss and every weight, step by step.

    python -m txlab equal "data.micro_batch_size=8" "data.micro_batch_size=1" +recipe=pretrain
    python -m txlab equal "model.backend=math" "model.backend=sdpa" +recipe=pretrain steps=20
    python -m txlab equal "" "trainer=ddp trainer.devices=2" +recipe=pretrain tolerance=1e-4
    python -m txlab equal "" "" +recipe=pretrain resume_at=random:5 tolerance=0

A and B are overrides in quotes; words behind them count for both. B of the last line is stopped
after each of five steps and resumed. Exit status 0: equal within the tolerance after every step;
1: different. docs/equal.md says what is compared and what may differ.
"""

import contextlib
import dataclasses
import os
import random
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlab.core.arguments import parse
from txlab.core.errors import RequestError, RunError

if TYPE_CHECKING:
    from txlab.schema import Config


@dataclass
class Arguments:
    """What the verb takes beside A, B and overrides of both."""

    steps: int = 10
    """Optimizer steps of each run; the schedule stays that of the whole run."""
    tolerance: float = 1e-4
    """Largest difference of a tensor, as a share of its largest value; 0: the same to the bit.

    Losses have a tenth of it.
    """
    every: int = 1
    """Compare the weights after each n-th step only; losses are compared at all."""
    resume_at: str = ""
    """Steps after which B is stopped, saved and resumed, such as 3,7; random:4 draws four."""


def main(words: Sequence[str]) -> int:
    """Run both, print where they part; 0 where they do not."""
    from txlab.train.divergence import compare
    from txlab.train.verdict import say

    arguments, rest = parse(Arguments, words, rest=True)
    check(arguments)
    if len(rest) < 2:
        raise RequestError(
            'equal takes two sets of overrides in quotes, A and B; "" is an empty one.'
        )
    if rest[1].startswith("+recipe=") and not any("+recipe=" in w for w in [rest[0], *rest[2:]]):
        recipe, _, more = rest[1].partition(" ")
        raise RequestError(
            f'equal: {recipe} stands where B should, for B alone: equal "{rest[0]}" '
            f'"{more or "..."}" {" ".join([recipe, *rest[2:]])} has it for both.'
        )
    sides = {"A": shlex.split(rest[0]), "B": shlex.split(rest[1])}
    configs = {side: composed(side, own, rest[2:]) for side, own in sides.items()}
    lengths = [config.train.steps or arguments.steps for config in configs.values()]
    arguments.steps = min(arguments.steps, max(lengths))
    stops = stops_of(arguments)
    with tempfile.TemporaryDirectory(prefix="txlab-equal-") as temporary:
        folder = Path(temporary)
        for side, config in configs.items():
            given = " ".join(sides[side]) or "(nothing changed)"
            print(f"run {side}       {given}", flush=True)
            begin = time.perf_counter()
            parts = [arguments.steps] if side == "A" else [*stops, arguments.steps]
            for number, stop in enumerate(parts):
                traced = with_trace(config, folder, side, arguments, stop, resumed=number > 0)
                part = f"{side}, resumed after step {parts[number - 1]}" if number else side
                go(traced, part, folder / f"{side}.txt")
            print(f"            {time.perf_counter() - begin:.1f} s", flush=True)
        found = compare(folder / "A", folder / "B", arguments.tolerance)
    if stops and stops[-1] >= found.lengths[1]:
        raise RequestError(
            f"resume_at={arguments.resume_at}: B ends after {found.lengths[1]} steps, so that it "
            f"was not resumed after {stops[-1]}: give earlier ones, or a longer run."
        )
    say(found, stops)
    return 0 if found.equal else 1


def check(arguments: Arguments) -> None:
    """RequestError where an argument is out of its range."""
    for key in ("steps", "every"):
        if getattr(arguments, key) < 1:
            raise RequestError(f"{key}={getattr(arguments, key)}: expected at least 1.")
    if not 0 <= arguments.tolerance < float("inf"):
        raise RequestError(f"tolerance={arguments.tolerance}: expected 0 or more.")


def stops_of(arguments: Arguments) -> list[int]:
    """Steps after which B is stopped; drawn ones are the same for the same words."""
    text, last = arguments.resume_at, arguments.steps - 1
    if not text:
        return []
    if match := re.fullmatch(r"random:(\d+)", text):
        count = int(match[1])
        if not 0 < count <= last:
            raise RequestError(
                f"resume_at={text}: steps={arguments.steps} has {last} to draw from."
            )
        return sorted(random.Random(count).sample(range(1, last + 1), count))
    words = text.split(",")
    if not all(word.strip().isdigit() and 1 <= int(word) <= last for word in words):
        raise RequestError(
            f"resume_at={text}: expected steps between 1 and {last} (steps={arguments.steps} is "
            "the end), such as 3,7, or random:4."
        )
    return sorted({int(word) for word in words})


def composed(side: str, own: Sequence[str], common: Sequence[str]) -> "Config":
    """The config of one side, refused as its run would be."""
    from txlab.core.hydra import compose, prepare
    from txlab.loading import inherited

    def key(word: str) -> str:
        return word.partition("=")[0].lstrip("+~").replace("/", ".")

    mine = {key(word) for word in own}
    words = [*(word for word in common if key(word) not in mine), *own]
    for word in words:
        if key(word) in ("run_dir", "resume", "ckpt"):
            raise RequestError(f"{word}: equal has folders of its own; resume_at=STEP resumes B.")
    try:
        return inherited(compose(words), prepare(words))[0]
    except RequestError as error:
        raise RequestError(f"{side}: {error}") from error


def with_trace(
    config: "Config", folder: Path, side: str, arguments: Arguments, stop: int, *, resumed: bool
) -> "Config":
    """The config of a part of a run: traced, quiet, in a folder of its own, no further than `stop`.

    Nothing that is changed here decides a result.
    """
    trace: dict[str, Any] = {
        "_target_": "txlab.train.callbacks.trace.Trace",
        "folder": str(folder / side),
        "against": None if side == "A" else str(folder / "A"),
        "steps": arguments.steps,
        "every": arguments.every,
        "tolerance": arguments.tolerance,
    }
    train = dataclasses.replace(
        config.train, stop_at=stop, log_every=1, val_every=None, val_batches=1, save_every=None
    )
    train = dataclasses.replace(train, keep_last=1, keep_best=0, keep_every=None)
    train = dataclasses.replace(train, sample=None, pictures=False)
    return dataclasses.replace(
        config,
        train=train,
        run_dir=str(folder / f"run-{side}"),
        resume="auto" if resumed else None,
        logger={},
        callbacks={**(config.callbacks or {}), "trace": trace},
    )


def go(config: "Config", side: str, log: Path) -> None:
    """Train; what the run prints goes to a file."""
    from txlab.run import train
    from txlab.train.state import seed_everything

    seed_everything(random.SystemRandom().randrange(2**32))  # nothing may hang on what was before
    try:
        with printing_to(log):
            train(config)
    except RequestError as error:
        raise RequestError(f"{side}: {error}") from error
    except RunError as error:
        raise RunError(f"{side}: {error}") from error


@contextlib.contextmanager
def printing_to(file: Path) -> Iterator[None]:
    """What this process and those it starts print goes to the end of `file`."""
    sys.stdout.flush()
    before = os.dup(1)
    with file.open("a", encoding="utf-8") as stream, contextlib.redirect_stdout(stream):
        os.dup2(stream.fileno(), 1)
        try:
            yield
        finally:
            stream.flush()
            os.dup2(before, 1)
            os.close(before)
