"""Every registered option keeps every promise of its slot."""

from txlab.testing import Check, Subject, parametrize_with_contracts
from txlab.testing.harness import stray_exemptions, subjects


@parametrize_with_contracts()
def test_contract(option: Subject, check: Check) -> None:
    check(option)


def test_exemptions_name_checks() -> None:
    stray = {str(subject): stray_exemptions(subject) for subject in subjects()}
    assert not any(stray.values()), stray
