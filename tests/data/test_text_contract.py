"""Text keeps the contract of data in every way of laying its documents into rows."""

import pytest

from txlab.data import data
from txlab.testing import judge
from txlab.testing.harness import Status, Subject, checks_of

WAYS: dict[str, tuple[tuple[str, str], ...]] = {
    "best_fit": (("packing", "best_fit"),),
    "none": (("packing", "none"),),
    "joined": (("documents", "joined"),),
}
OWN_WIDTH = {("none", "rows_are_well_formed")}
"""Asks that the context is filled, which a document by itself does not."""


@pytest.mark.parametrize("way", WAYS)
def test_the_contract(way: str) -> None:
    subject = Subject(data, data.option("text"), WAYS[way])
    found = [judge(subject, check) for check in checks_of(subject)]
    assert len(found) > 10
    bad = [r for r in found if r.status is not Status.passed and (way, r.check) not in OWN_WIDTH]
    assert bad == []
