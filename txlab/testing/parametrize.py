"""Contracts as pytest parameters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txlab.testing.harness import checks_of, subjects

if TYPE_CHECKING:
    import pytest


def parametrize_with_contracts(
    slots: Sequence[str] | None = None, options: Sequence[str | type] | None = None
) -> "pytest.MarkDecorator":
    """Run a test function of `(option, check)` once for each option and check of its slot.

    `slots`: paths such as `model.attn`; None: all. `options`: names, `SLOT=NAME` or registered
    classes; None: every registered one. A check that the option's class is exempt from is a strict
    xfail with the class's reason: listed by `pytest -rx`, and an error once it passes.
    """
    import pytest

    cases: list[Any] = []
    for subject in subjects(slots, options):
        for check in checks_of(subject):
            reason = subject.exempt.get(check.name)
            marks = () if reason is None else (pytest.mark.xfail(reason=reason, strict=True),)
            cases.append(pytest.param(subject, check, id=f"{subject}-{check.name}", marks=marks))
    return pytest.mark.parametrize(("option", "check"), cases)
