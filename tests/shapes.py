"""Annotated shapes checked at every call, in the tests only: it costs too much in a run."""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import torch
from beartype import beartype
from jaxtyping import jaxtyped


def check_shapes(*packages: str) -> int:
    """Wrap every method with shapes in these packages' classes; returns how many there are."""
    count = 0
    for package in packages:
        root = importlib.import_module(package)
        names = [m.name for m in pkgutil.walk_packages(root.__path__, f"{package}.")]
        for module in (importlib.import_module(name) for name in names):
            for owner in vars(module).values():
                if inspect.isclass(owner) and owner.__module__ == module.__name__:
                    count += _check_class(owner)
    return count


def _check_class(owner: type) -> int:
    methods = {
        name: method
        for name, method in vars(owner).items()
        if inspect.isfunction(method) and _has_shapes(method)
    }
    for name, method in methods.items():
        setattr(owner, name, _checked(method))
    return len(methods)


def _has_shapes(method: Callable[..., Any]) -> bool:
    said = str(method.__annotations__)
    return "Tensor" in said and "Self" not in said  # beartype takes Self on whole classes only


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method with its annotations checked at each call that torch is not tracing."""
    strict = jaxtyped(method, typechecker=beartype)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        chosen = method if torch.compiler.is_compiling() else strict
        return chosen(*args, **kwargs)

    return call
