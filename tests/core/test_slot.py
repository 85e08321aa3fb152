"""Registration is strict, building goes by the config's type, unknown names say what there is."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from txlab.core import plugins
from txlab.core.config import Component
from txlab.core.errors import RequestError
from txlab.core.slot import SLOTS, Slot, blank, slot_at


class Part:
    @dataclass
    class Config(Component):
        size: int = 3

    def __init__(self, config: Any, extra: int = 0) -> None:
        self.config, self.extra = config, extra


@pytest.fixture
def slot() -> Iterator[Slot[Part]]:
    made = Slot("test.part", Part, doc="For tests.")
    yield made
    del SLOTS["test.part"]
    ConfigStore.instance().repo.pop("test.part", None)


def test_an_option_is_registered_with_its_own_config_and_origin(slot: Slot[Part]):
    @slot("big")
    class Big(Part):
        pass

    assert Big.Config is not Part.Config
    assert Big.Config() == Big.Config(name="big", size=3)
    assert Part.Config().name == ""
    option = slot.options["big"]
    assert (option.cls, option.config, option.module) == (Big, Big.Config, __name__)
    assert option.origin.partition(":")[0] == __file__
    node = ConfigStore.instance().load("test.part/big.yaml")
    assert (node.package, node.node) == ("test.part", {"name": "big", "size": 3})


def test_two_options_of_one_class_tree_keep_their_own_names(slot: Slot[Part]):
    @slot("a")
    class A(Part):
        pass

    @slot("b")
    class B(A):
        pass

    assert (A.Config().name, B.Config().name) == ("a", "b")
    assert type(slot.build(A.Config())) is A
    assert type(slot.build(B.Config(), extra=4)) is B
    assert slot.build(B.Config(), extra=4).extra == 4


def test_a_name_is_given_once_and_the_refusal_names_both_places(slot: Slot[Part]):
    slot("a")(type("A", (Part,), {}))
    with pytest.raises(
        TypeError, match=rf"test.part=a is registered twice: {__file__}:\d+ .*{__file__}"
    ):
        slot("a")(type("Again", (Part,), {}))


def test_what_does_not_fit_the_interface_is_refused(slot: Slot[Part]):
    with pytest.raises(TypeError, match="Stranger is no Part"):
        slot("x")(type("Stranger", (), {}))
    with pytest.raises(TypeError, match=r"Bare.Config must derive from Part\.Config"):
        slot("x")(type("Bare", (Part,), {"Config": Component}))


def test_a_config_that_cannot_be_typed_is_refused_with_its_place(slot: Slot[Part]):
    @dataclass
    class Config(Part.Config):
        mixed: int | list[int] = 3

    with pytest.raises(TypeError, match=rf"{__file__}:\d+: X.Config cannot be typed"):
        slot("x")(type("X", (Part,), {"Config": Config}))
    assert not slot.options


def test_enums_are_typed(slot: Slot[Part]):
    class Order(str, Enum):
        up = "up"
        down = "down"

    @slot("x")
    class X(Part):
        @dataclass
        class Config(Part.Config):
            order: Order = Order.up

    merged = OmegaConf.merge(OmegaConf.structured(X.Config), {"order": "down"})
    assert OmegaConf.to_object(merged).order is Order.down
    assert X.Config(order="down").order is Order.down
    with pytest.raises(
        RequestError, match=r"^test\.part\.order=left of option 'x': expected one of up, down"
    ):
        X.Config(order="left")


def test_a_slot_is_declared_once(slot: Slot[Part]):
    with pytest.raises(ValueError, match=r"slot 'test\.part' is declared twice"):
        Slot("test.part", Part, doc="")


def test_unknown_names_say_what_is_near_and_what_there_is(slot: Slot[Part]):
    slot("gqa")(type("A", (Part,), {}))
    slot("mha")(type("B", (Part,), {}))
    with pytest.raises(RequestError) as error:
        slot.option("gpa")
    assert str(error.value) == (
        "unknown option 'gpa' of test.part. Did you mean gqa? There are: gqa, mha."
    )
    with pytest.raises(RequestError, match=r"Did you mean test\.part"):
        slot_at("test.prt")


def test_unknown_names_repeat_the_plugins_that_failed(slot: Slot[Part], monkeypatch: Any):
    monkeypatch.setattr(plugins, "FAILURES", failures := [])
    failures.append("plugin 'mine' failed")
    monkeypatch.setattr("txlab.core.slot.FAILURES", failures)
    with pytest.raises(RequestError, match="Note: plugin 'mine' failed"):
        slot.option("mine")


def test_a_foreign_config_or_a_changed_name_does_not_build(slot: Slot[Part]):
    @slot("a")
    class A(Part):
        pass

    with pytest.raises(RequestError, match="no option is registered for config type"):
        slot.build(Part.Config())
    with pytest.raises(RequestError, match=r"test.part.name='b' cannot be set: .* test.part=b"):
        slot.build(dataclasses.replace(A.Config(), name="b"))


def test_options_cannot_be_added_behind_the_slots_back(slot: Slot[Part]):
    with pytest.raises(TypeError):
        slot.options["x"] = None  # type: ignore[index]


def test_a_blank_node_leaves_the_slots_below_to_be_chosen():
    from txlab.models import Decoder
    from txlab.nn.attention import Mixer

    node = blank(Decoder.Config, "model")
    assert OmegaConf.get_type(node.attn) is Mixer.Config
    assert list(node.attn) == [f.name for f in dataclasses.fields(Mixer.Config)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", float("inf")),
        ("number", float("-inf")),
        ("number", float("nan")),
        ("size", 1 << 63),
    ],
)
def test_numbers_that_end_in_nan_or_overflow_are_refused_in_every_option(
    slot: Slot[Part], field: str, value: float
):
    @slot("a")
    class A(Part):
        @dataclass
        class Config(Part.Config):
            number: float = 1.0

    @slot("b")
    class B(A):
        pass

    for name, option in (("a", A), ("b", B)):
        message = rf"^test\.part\.{field}=.* of option '{name}': expected a "
        with pytest.raises(RequestError, match=message):
            option.Config(**{field: value})
        with pytest.raises(RequestError, match=message):
            slot.config({"name": name, field: value})
