"""Every registered option keeps every promise of its slot."""

import jaxtyping
import pytest

from txlab.testing import Check, Subject, parametrize_with_contracts
from txlab.testing.harness import stray_exemptions, subjects


@parametrize_with_contracts()
def test_contract(option: Subject, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    if check.name == "compiles":
        # The checks of annotated shapes that tests install are no code a graph could hold.
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    check(option)


def test_exemptions_name_checks() -> None:
    stray = {str(subject): stray_exemptions(subject) for subject in subjects()}
    assert not any(stray.values()), stray
