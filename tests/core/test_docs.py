"""Summaries, papers and field texts come from the source."""

import dataclasses
from dataclasses import dataclass, field

from txlab.core import docs
from txlab.nn.attention import GQA


@dataclass
class Base:
    a: int = 1
    """First
    of two lines."""
    b: str | None = None


@dataclass
class Derived(Base):
    b: str | None = ""
    """Now it says something."""
    c: list[int] = field(default_factory=list)
    "Single quotes count too."
    d: bool = False
    e: float = dataclasses.field(default=1e-5)


def test_field_docs_follow_the_bases():
    assert docs.field_docs(Derived) == {
        "a": "First of two lines.",
        "b": "Now it says something.",
        "c": "Single quotes count too.",
    }


def test_field_docs_of_a_registered_option():
    said = docs.field_docs(GQA.Config)
    assert said["n_kv_heads"].startswith("Key/value heads")
    assert "qk_norm" in said


def test_defaults_as_one_would_write_them():
    written = {f.name: docs.default_text(f) for f in dataclasses.fields(Derived)}
    assert written == {"a": "1", "b": '""', "c": "[]", "d": "false", "e": "1e-05"}


def test_types_as_one_would_write_them():
    assert docs.type_name(int) == "int"
    assert docs.type_name(int | None) == "int | None"
    assert docs.type_name(list[int]) == "list[int]"


def test_summary_and_paper():
    assert docs.summary(GQA).startswith("Grouped-query attention")
    assert docs.paper(GQA) == "Ainslie et al. 2023"
    assert docs.paper(Base) is None
