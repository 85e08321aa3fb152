"""Every check can fail: options broken in one way each are caught by the check that is meant to."""

import pytest

import tests.testing.mutants.adapters
import tests.testing.mutants.attention
import tests.testing.mutants.backends
import tests.testing.mutants.biases
import tests.testing.mutants.bodies
import tests.testing.mutants.experts
import tests.testing.mutants.mixers
import tests.testing.mutants.optimizers
import tests.testing.mutants.parts
import tests.testing.mutants.pictures
import tests.testing.mutants.positions
import tests.testing.mutants.runs
import tests.testing.mutants.sinks
import tests.testing.mutants.sparse
import tests.testing.mutants.texts  # noqa: F401
from tests.testing.mutant import MUTANTS, Mutant
from txlab.core.slot import SLOTS
from txlab.testing import judge, lent
from txlab.testing.harness import Status, checks, checks_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{m.cls.__name__}-{m.check}" for m in MUTANTS])
def test_is_caught(mutant: Mutant) -> None:
    before = {path: list(slot.options) for path, slot in SLOTS.items()}
    with lent(mutant.cls) as subject:
        check = checks()[mutant.check]
        assert check in checks_of(subject)
        result = judge(subject, check)
    assert result.status is Status.failed
    assert mutant.says in result.detail
    assert {path: list(slot.options) for path, slot in SLOTS.items()} == before


def test_every_check_has_caught_something() -> None:
    never = sorted(set(checks()) - {mutant.check for mutant in MUTANTS})
    assert not never, f"no mutant shows that these can fail: {', '.join(never)}"
