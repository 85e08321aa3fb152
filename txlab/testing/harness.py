"""The contract harness: checks by slot, options under test, and who is exempt from what."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any

from txlab.core.config import Component
from txlab.core.errors import RequestError
from txlab.core.slot import SLOTS, Option, Slot, slot_at, unknown

EVERY = "*"
"""Stands for all slots in `contract`."""


@dataclass(frozen=True)
class Subject:
    """One option under test, as it is by default or with some fields set."""

    slot: Slot[Any]
    option: Option
    fields: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        chosen = (f",{name}={str(value).lower()}" for name, value in self.fields)
        return f"{self.slot.path}={self.option.name}{''.join(chosen)}"

    def switched(self) -> "list[Subject]":
        """This subject, and one more with every switch of its config turned that may be."""
        default = self.config()
        turned: dict[str, Any] = {}
        for field in fields(default):
            value = getattr(default, field.name)
            if isinstance(value, bool):
                try:
                    self.config(**turned, **{field.name: not value})
                except RequestError:
                    continue
                turned[field.name] = not value
        return [self, replace(self, fields=tuple(turned.items()))] if turned else [self]

    @property
    def exempt(self) -> dict[str, str]:
        """Checks this option's class asks to be spared, each with its reason."""
        return dict(getattr(self.option.cls, "exempt", {}))

    def has(self, *names: str) -> bool:
        """Whether the option's config has all of these fields."""
        return set(names) <= {f.name for f in fields(self.option.config)}

    def overrides(self, method: str) -> bool:
        """Whether the option's class brings its own version of the interface's `method`."""
        return getattr(self.option.cls, method) is not getattr(self.slot.interface, method)

    def config(self, **chosen: Any) -> Component:
        """The option's config: defaults but for the subject's fields and those given."""
        return self.option.config(**dict(self.fields) | chosen)

    def build(self, *args: Any, config: Component | None = None, **parts: Any) -> Any:
        """The option built through its slot, as a run builds it."""
        return self.slot.build(config or self.config(), *args, **parts)


@dataclass(frozen=True)
class Check:
    """One promise of a slot: `run(subject)` raises AssertionError where it is not kept."""

    name: str
    doc: str
    slots: tuple[str, ...]
    run: Callable[[Subject], None]
    when: Callable[[Subject], bool] | None = None

    def __call__(self, subject: Subject) -> None:
        self.run(subject)

    def applies(self, subject: Subject) -> bool:
        """Whether the slot has this check and the option has what it is about."""
        if self.slots != (EVERY,) and subject.slot.path not in self.slots:
            return False
        return self.when is None or self.when(subject)


class Status(StrEnum):
    """How a check ended."""

    passed = "passed"
    failed = "FAILED"
    exempt = "exempt"


@dataclass(frozen=True)
class Result:
    """One check of one option: `detail` is the failure or the reason of the exemption."""

    subject: Subject
    check: str
    status: Status
    detail: str = ""


_checks: dict[str, Check] = {}


def contract(
    *slots: str, when: Callable[[Subject], bool] | None = None
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Register a check of these slots (`"*"`: all) under the function's name.

    The first line of its docstring says what is promised. `when` says whether the check applies
    to an option at all: a check of windows needs a field `window`.
    """

    def register(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
        name = run.__name__
        if name in _checks:
            raise ValueError(f"contract {name!r} is registered twice")
        doc = (inspect.getdoc(run) or "").partition("\n")[0]
        _checks[name] = Check(name, doc, slots, run, when)
        return run

    return register


@cache
def checks() -> dict[str, Check]:
    """Every check by name, txlab's own and those registered by plugins."""
    import txlab.schema
    import txlab.testing.contracts  # noqa: F401

    return _checks


def checks_of(subject: Subject) -> list[Check]:
    """The checks that apply to an option, the general ones first."""
    return [check for check in checks().values() if check.applies(subject)]


def subjects(
    slots: Sequence[str] | None = None, options: Sequence[str | type] | None = None
) -> list[Subject]:
    """Registered options of these slots (None: all), or only those in `options`.

    An option with switches comes twice: as it is by default, and with all of them turned.
    An option is given by its name, by `SLOT=NAME`, or by its class. RequestError for one that
    nobody registered.
    """
    checks()
    everything = [
        subject
        for slot in ([slot_at(path) for path in slots] if slots else list(SLOTS.values()))
        for option in slot.options.values()
        for subject in Subject(slot, option).switched()
    ]
    if options is None:
        return everything
    found: list[Subject] = []
    for wanted in options:
        hits = [
            s
            for s in everything
            if wanted in (s.option.name, f"{s.slot.path}={s.option.name}", s.option.cls)
        ]
        if not hits:
            name = wanted if isinstance(wanted, str) else wanted.__qualname__
            known = dict.fromkeys(f"{s.slot.path}={s.option.name}" for s in everything)
            raise RequestError(unknown(f"option {name!r}", name, known))
        found += [hit for hit in hits if hit not in found]
    return found


@contextmanager
def lent(cls: type, name: str | None = None) -> Iterator[Subject]:
    """`cls` as a subject, registered for the length of the block where it is not already.

    The slot is the one whose interface the class derives from.
    """
    checks()
    slot = slot_of(cls)
    for option in slot.options.values():
        if option.cls is cls:
            yield Subject(slot, option)
            return
    name = name or cls.__name__.lower()
    own_config = cls.__dict__.get("Config")
    slot(name)(cls)
    try:
        yield Subject(slot, slot.option(name))
    finally:
        slot.remove(name)
        if own_config is None:
            del cls.Config
        else:
            cls.Config = own_config


def slot_of(cls: type) -> Slot[Any]:
    """The slot whose interface `cls` derives from; RequestError where there is none."""
    for slot in SLOTS.values():
        if issubclass(cls, slot.interface):
            return slot
    known = ", ".join(f"{slot.interface.__name__} ({path})" for path, slot in SLOTS.items())
    raise RequestError(f"{cls.__qualname__} derives from no slot's interface. There are: {known}.")


def judge(subject: Subject, check: Check) -> Result:
    """Run one check. An exemption that is not needed any more counts as a failure."""
    reason = subject.exempt.get(check.name)
    try:
        check(subject)
    except Exception as error:  # a check may break in any way: that is its result
        if reason is not None:
            return Result(subject, check.name, Status.exempt, reason)
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        line = " ".join(str(error).split())
        return Result(subject, check.name, Status.failed, kind + line)
    if reason is not None:
        stale = f"passes: drop the exemption ({reason})"
        return Result(subject, check.name, Status.failed, stale)
    return Result(subject, check.name, Status.passed)


def stray_exemptions(subject: Subject) -> list[str]:
    """Names in `exempt` that are no check of this option."""
    return sorted(set(subject.exempt) - {check.name for check in checks_of(subject)})


def verdicts(subject: Subject) -> Iterator[Result]:
    """The results of all of an option's checks, as they come."""
    for check in checks_of(subject):
        yield judge(subject, check)
    for name in stray_exemptions(subject):
        yield Result(
            subject, name, Status.failed, "it is exempt from a check that it does not have"
        )
