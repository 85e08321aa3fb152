"""Contracts for options, txlab's own and yours.

Every slot has checks that each of its options must pass: causality for `model.attn`, additivity
for `objective` ... A plugin runs the same ones. In its tests:

    import my_plugin  # registers model.attn=mine
    from txlab.testing import parametrize_with_contracts

    @parametrize_with_contracts(options=["model.attn=mine"])
    def test_contract(option, check):
        check(option)

or, without pytest, `python -m txlab check model.attn=mine` or `... check my_plugin:Mine`.

An option that cannot keep a promise says which, and why; the reason is printed and counted:

    @attention("mine")
    class Mine(Mixer):
        exempt: ClassVar[dict[str, str]] = {"permutation_equivariant": "counts from the left"}

The checks stand in `txlab.testing.contracts`, one file a slot; `tiny` has the sizes, models,
batches and texts they use. `@contract("model.attn")` adds a check of your own.
"""

from txlab.testing.harness import Check, Subject, contract, judge, lent, subjects
from txlab.testing.parametrize import parametrize_with_contracts

__all__ = [
    "Check",
    "Subject",
    "contract",
    "judge",
    "lent",
    "parametrize_with_contracts",
    "subjects",
]
