"""Checks that several slots share can fail in each of them: one fault, built into each slot's usual
option."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import txlab.schema  # noqa: F401  (declares every slot)
from txlab.commands.new import usual
from txlab.core.slot import SLOTS
from txlab.models.model import Output
from txlab.testing import judge, lent
from txlab.testing.harness import Status, checks, checks_of
from txlab.testing.probes import NETWORK

MODULES = [path for path in NETWORK if path != "model.pos"]  # a scheme has no forward to break


def output(edit: Callable[[Tensor], Tensor]) -> Callable[[type], type]:
    """The fault of a forward pass whose result is edited."""

    def make(base: Any) -> type:
        class Faulty(base):
            """An option whose output is edited."""

            def forward(self, *args: Any, **named: Any) -> Any:
                y = super().forward(*args, **named)
                if isinstance(y, Output):
                    return Output(edit(y.states), y.aux)
                return edit(y)

        return Faulty

    return make


def tensor(name: str, make_one: Callable[[], Tensor]) -> Callable[[type], type]:
    """The fault of one more parameter or buffer."""

    def make(base: Any) -> type:
        class Faulty(base):
            """An option with a tensor that it does not need."""

            def __init__(self, *args: Any, **parts: Any) -> None:
                super().__init__(*args, **parts)
                one = make_one()
                if isinstance(one, nn.Parameter):
                    setattr(self, name, one)
                else:
                    self.register_buffer(name, one)

        return Faulty

    return make


def writes(base: Any) -> type:
    class Faulty(base):
        """An option that turns its input round."""

        def forward(self, x: Tensor, *args: Any, **named: Any) -> Any:
            return super().forward(x.copy_(x.flip(1)), *args, **named)

    return Faulty


def copies_nothing(base: Any) -> type:
    class Faulty(base):
        """An option that is its own copy."""

        def __deepcopy__(self, memo: Any) -> Any:
            return self

    return Faulty


def fits_nowhere(base: Any) -> type:
    class Faulty(base):
        """An option that cannot be built."""

        def __init__(self, *args: Any, **parts: Any) -> None:
            raise ValueError("nothing fits")

    return Faulty


def with_config(change: Callable[[Any], None]) -> Callable[[type], type]:
    """The fault of a config that changes itself when it is made."""

    def make(base: Any) -> type:
        class Faulty(base):
            """An option with a config that changes itself."""

            @dataclass
            class Config(base.Config):
                """Fields of the option."""

                grown: int = 0

                def __post_init__(self) -> None:
                    inherited = getattr(super(), "__post_init__", None)
                    if inherited is not None:
                        inherited()
                    change(self)

        return Faulty

    return make


def says_nothing(base: Any) -> type:
    return type("Faulty", (base,), {"__doc__": None})


def grows(config: Any) -> None:
    config.grown += 1


def renames(config: Any) -> None:
    config.name = "somebody"


FAULTS: dict[str, tuple[Callable[[type], type], str]] = {
    "keeps_shape_and_dtype": (output(lambda y: torch.cat([y, y[:, -1:]], 1)), "tokens gives (2, 8"),
    "finite_under_autocast": (
        output(lambda y: y / 0.0 if torch.is_autocast_enabled("cpu") else y),
        "output under autocast: ",
    ),
    "every_parameter_learns": (
        tensor("idle", lambda: nn.Parameter(torch.ones(3))),
        "part.idle gets no gradient",
    ),
    "deterministic": (output(lambda y: y + torch.randn_like(y)), "depends on an earlier call"),
    "leaves_its_input_alone": (writes, "changed in place"),
    "rows_do_not_mix": (output(lambda y: y + y.mean(0, keepdim=True)), "row 0 alone"),
    "state_survives_saving": (tensor("calls", lambda: torch.zeros(())), "part.calls"),
    "deep_copies": (copies_nothing, "after its copy was changed"),
    "compiles": (output(lambda y: y * (2.0 if float(y.sum()) > 0 else 1.0)), ""),
    "builds_on_meta": (
        tensor("table", lambda: nn.Parameter(torch.zeros(3, device="cpu"))),
        "made in memory all the same: part.table",
    ),
    "builds_from_defaults": (fits_nowhere, "nothing fits"),
    "config_survives_saving": (with_config(grows), "field grown: 1 came back as 2"),
    "says_what_it_is": (says_nothing, "no docstring"),
    "names_itself": (with_config(renames), "somebody"),
}
EVERYWHERE = ("builds_from_defaults", "config_survives_saving", "says_what_it_is", "names_itself")
CASES = [(check, path) for check in FAULTS for path in (SLOTS if check in EVERYWHERE else MODULES)]


@pytest.mark.parametrize(("check", "path"), CASES, ids=[f"{c}-{p}" for c, p in CASES])
def test_is_caught_in_every_slot(check: str, path: str) -> None:
    make, says = FAULTS[check]
    with lent(make(usual(SLOTS[path])), "faulty") as subject:
        assert subject.slot.path == path
        assert checks()[check] in checks_of(subject)
        result = judge(subject, checks()[check])
    assert result.status is Status.failed
    assert says in result.detail


def test_no_shared_check_is_left_out() -> None:
    shared = {
        name
        for name, check in checks().items()
        if check.slots == ("*",) or set(check.slots) == set(NETWORK)
    }
    assert shared == set(FAULTS)
