"""Schedules: pure functions of the update's number, from a warm-up to the end of the run."""

import math

from txlab.testing.assertions import expect
from txlab.testing.harness import Subject, contract

SCHEDULE = "schedule"


def factors(subject: Subject, total: int, **fields: object) -> list[float]:
    """Factors of all updates of a run."""
    built = subject.build(config=subject.config(**fields), total_steps=total)
    return [built.factor(update) for update in range(total)]


@contract(SCHEDULE)
def stays_between_0_and_1(subject: Subject) -> None:
    """Every factor of runs of 1, 2, 10 and 1000 steps is finite and lies in [0, 1]."""
    for total in (1, 2, 10, 1000):
        for update, factor in enumerate(factors(subject, total)):
            good = math.isfinite(factor) and 0 <= factor <= 1
            expect(good, f"factor of update {update} of {total} is {factor}")


@contract(SCHEDULE)
def warms_up_exactly(subject: Subject) -> None:
    """warmup=5 rises by fifths to 1 at the fifth update; warmup=0.1 of 100 does so at the tenth."""
    for total, warmup, n in ((20, 5, 5), (100, 0.1, 10), (5, 5, 5)):
        found = factors(subject, total, warmup=warmup)
        for update in range(n):
            wanted = (update + 1) / n
            close = math.isclose(found[update], wanted, abs_tol=1e-9)
            expect(close, f"warmup={warmup}: factor {found[update]:g} of update {update}")


@contract(SCHEDULE)
def starts_at_once_without_warm_up(subject: Subject) -> None:
    """warmup=0 has no slow start: the first factor is above 0.9 in a run of 100."""
    first = factors(subject, 100, warmup=0)[0]
    expect(first > 0.9, f"the first factor is {first:g}")


@contract(SCHEDULE)
def depends_on_the_update_alone(subject: Subject) -> None:
    """The factor of an update is the same in any order of asking, and in a run that was resumed."""
    config = subject.config(warmup=5)
    built = subject.build(config=config, total_steps=50)
    forward = [built.factor(update) for update in range(50)]
    backward = [built.factor(update) for update in reversed(range(50))][::-1]
    fresh = [subject.build(config=config, total_steps=50).factor(update) for update in range(50)]
    expect(forward == backward == fresh, "factors depend on earlier calls")
    expect(forward != [1.0] * 50, "the factor never changes")


@contract(SCHEDULE)
def short_runs_end_within_the_warm_up(subject: Subject) -> None:
    """A run shorter than its warm-up rises to its end: 20 steps of warmup=40 reach a half."""
    found = factors(subject, 20, warmup=40)
    wanted = [(update + 1) / 40 for update in range(20)]
    close = all(math.isclose(f, w, abs_tol=1e-9) for f, w in zip(found, wanted, strict=True))
    expect(close, f"factors end at {found[-1]:g}, expected 0.5")
