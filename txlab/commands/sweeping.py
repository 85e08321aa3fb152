"""A sweep (-m): checked, launched by Hydra, concluded whatever became of its arms."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from txlab.commands import arm
from txlab.core.errors import RequestError, report
from txlab.core.hydra import arms, overrides, sweep_words
from txlab.core.hydra import sweep as ends
from txlab.core.signals import answered


def sweep(words: Sequence[str]) -> int:
    """Run the arms that normalised words ask for; the highest exit status among them."""
    from txlab.commands.train import start

    refuse_ranks()
    flags, plain = overrides.split_flags(words)
    sweep_words.check(plain)
    arm.main_process, ends.begun = os.getpid(), None
    failure, status = None, 0
    try:
        with _passing_on_stops(_is_basic(plain)):
            start([*flags, *plain, *sweep_words.settings(plain)])
    except arm.Stopped:
        status = arms.PREEMPTED
    except arm.Refused as refused:
        failure = refused.why
    except Exception as error:
        failure = error
    if ends.begun is not None:
        status = max(status, ends.conclude(ends.begun))
    if status == arms.PREEMPTED and ends.begun is not None:
        print(
            f"txlab: the sweep was stopped; the same command with run_dir={ends.begun.folder} "
            "resume=auto goes on with it.",
            file=sys.stderr,
        )
    if failure is not None:
        status = status or report(failure)
    return status


def refuse_ranks() -> None:
    """A sweep starts the ranks of its runs itself: several of it would each make their own."""
    from txlab.train.ranks import started

    if started():
        raise RequestError(
            "-m cannot be run by torchrun, which would run the whole sweep in every rank: leave "
            "torchrun away, trainer=ddp trainer.devices=N starts the ranks of each run."
        )


def _is_basic(words: Sequence[str]) -> bool:
    names = [w.partition("=")[2] for w in words if w.startswith(f"{sweep_words.LAUNCHER}=")]
    return names in ([], ["basic"])


@contextmanager
def _passing_on_stops(basic: bool) -> Iterator[None]:
    """SIGTERM and Ctrl-C end a sweep: arms save themselves, here or in a launcher's processes.

    A second Ctrl-C does not wait for them.
    """
    told: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if basic:
            raise arm.Stopped
        if number == signal.SIGINT and told:
            raise KeyboardInterrupt
        told.append(number)
        import psutil

        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGTERM)

    with answered((signal.SIGINT, signal.SIGTERM), stop):
        yield
