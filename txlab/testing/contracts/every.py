"""What every option of every slot keeps: it builds from its defaults, is documented, is saved."""

import dataclasses
from typing import Any

from txlab.core.config import Component, Dims
from txlab.core.errors import RequestError
from txlab.testing import tiny
from txlab.testing.assertions import expect
from txlab.testing.harness import EVERY, Subject, contract
from txlab.testing.probes import NETWORK, probe


@contract(EVERY)
def builds_from_defaults(subject: Subject) -> None:
    """Builds from its defaults at three sizes, the smallest with one head."""
    for dims in tiny.SIZES:
        build(subject, dims)


def build(subject: Subject, dims: Dims) -> Any:
    """The option at this size, built with whatever its slot's constructor takes."""
    path = subject.slot.path
    if path in NETWORK:
        return probe(subject, dims).part
    if path in ("model.backend", "model.init"):
        return subject.build(dims)
    if path == "data":
        from txlab.data.tokenizer import BPE

        return subject.build(BPE.Config(), context=dims.context)
    if path == "schedule":
        return subject.build(total_steps=10 * dims.n_layers)
    return subject.build()


@contract(EVERY)
def config_survives_saving(subject: Subject) -> None:
    """Its config is the same after it was written as YAML and read back, each field set or not."""
    for config in variants(subject):
        root = read_back(subject, config)
        expect(type(root) is type(config), f"{subject} came back as {type(root).__qualname__}")
        for field in dataclasses.fields(config):
            was, now = getattr(config, field.name), getattr(root, field.name)
            expect(was == now, f"field {field.name}: {was!r} came back as {now!r}")


def variants(subject: Subject) -> list[Component]:
    """The default config, and one more for each switch turned the other way that is allowed."""
    default = subject.config()
    found = [default]
    for field in dataclasses.fields(default):
        value = getattr(default, field.name)
        if isinstance(value, bool):
            try:
                found.append(subject.config(**{field.name: not value}))
            except RequestError:
                continue
    return found


def read_back(subject: Subject, config: Component) -> Component:
    """The config after a saved run's config.yaml held it in its slot."""
    from txlab.core.hydra import from_yaml, to_yaml
    from txlab.schema import Config

    *parents, leaf = subject.slot.path.split(".")
    root: Any = Config()
    owner = root
    for name in parents:
        owner = getattr(owner, name)
    setattr(owner, leaf, config)
    loaded: Any = from_yaml(to_yaml(root))
    for name in (*parents, leaf):
        loaded = getattr(loaded, name)
    return loaded


@contract(EVERY)
def says_what_it_is(subject: Subject) -> None:
    """The class has a docstring of its own, its first line at most 100 letters long."""
    doc = (subject.option.cls.__dict__.get("__doc__") or "").strip()
    expect(doc, "no docstring: `list` and `show` have nothing to say")
    line = doc.partition("\n")[0]
    expect(len(line) <= 100, f"the docstring's first line has {len(line)} letters")


@contract(EVERY)
def names_itself(subject: Subject) -> None:
    """Its config's `name` is the registered one, and no other option's config has its type."""
    config = subject.config()
    expect(config.name == subject.option.name, f"the config is named {config.name!r}")
    expect(subject.slot.option_of(config) is subject.option, "its config belongs to another option")
