"""What the source says about a class: its summary, its paper, the text under each field."""

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any, get_args


def summary(thing: Any) -> str:
    """First paragraph of the docstring, in one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def paper(cls: type) -> str | None:
    """The paper that the class's docstring names, such as `Ainslie et al. 2023`."""
    text = " ".join((cls.__doc__ or "").split())
    found = re.search(r"\(([A-Z][^()]*?\b(?:19|20)\d\d[a-z]?)\)", text)
    return found[1] if found else None


def field_docs(config: type) -> dict[str, str]:
    """The string literal under each field of a dataclass, bases included, in one line each."""
    docs: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        if dataclasses.is_dataclass(owner):
            docs |= _own_docs(owner)
    return docs


def type_name(kind: Any) -> str:
    """A field's type as one would write it."""
    if isinstance(kind, type) and not get_args(kind):
        return kind.__qualname__
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(kind)).replace("NoneType", "None")


def default_text(field: "dataclasses.Field[Any]") -> str:
    """A field's default as one would write it on the command line."""
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    if dataclasses.is_dataclass(value):
        return getattr(value, "name", "") or "..."
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return getattr(value, "name", None) or ('""' if value == "" else str(value))


def module_summary(file: Path) -> str:
    """First line of a module's docstring, without importing it."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _own_docs(owner: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return {}  # a class made at registration, or one typed into a prompt
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    docs = {}
    for statement, after in itertools.pairwise(body):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docs[statement.target.id] = " ".join(str(after.value.value).split())
    return docs
