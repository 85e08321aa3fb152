"""The table of backends and features: each cell is a check that passed, or a refusal.

python -m txlab.testing.backends > docs/backends.md
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.backend import backend
from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.contracts.backend import close, dropout_drops, heads, kernel, masks
from txlab.testing.harness import Subject

HEAD = """# Backends and what they compute

Made by `python -m txlab.testing.backends`; a test keeps it fresh. Every cell was tried when the
table was made, on a CPU, in float32:

- **yes**: values and gradients equal the definition, written out query by query;
- **values**: the values do; the backend has no backward on a CPU and refuses one in a line;
- **no**: refused in one line when the model is built, naming the backends that can.

`auto` takes the fastest that can: `sdpa` (with a cap `math`), `flash` for what asks for a fused
kernel, `banded` where a window, documents or a score leave most of a long row unseen. No GPU has
run any of this yet; what differs there is said in the last section.
"""
TAIL = """
## On a GPU (not verified)

- `flash` takes causal and full masks only, in half precision; all else is refused at the call.
- `flex` is compiled, has gradients, and makes its block mask once a step.
- `banded` and `math` are plain PyTorch and the same on any device.
"""


def score(h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """A bias as ALiBi's, another slope for each head."""
    return -0.3 * (h + 1) * (q - k).abs()


FEATURES: dict[str, dict[str, Any]] = {
    "score": {"score": score},
    "softcap": {"softcap": 0.5},
    "sink_logit": {"sink_logit": torch.tensor([-1.0, 0.0, 1.0, 2.0])},
}


def table() -> str:
    """The page: masks and features down, backends across."""
    subjects = [Subject(backend, option) for option in backend.options.values()]
    names = [subject.option.name for subject in subjects]
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for what, cell in _rows():
        lines.append(f"| {what} | {' | '.join(cell(subject) for subject in subjects)} |")
    return HEAD + "\n" + "\n".join(lines) + "\n" + TAIL


def _rows() -> Iterable[tuple[str, Callable[[Subject], str]]]:
    for what, mask in masks().items():
        yield what, lambda subject, mask=mask, what=what: _cell(subject, mask, what)
    for name, how in FEATURES.items():
        yield (
            f"`{name}`",
            lambda subject, name=name, how=how: _cell(subject, Mask(7, 7), name, **how),
        )
    yield "`dropout`", _dropout
    yield "`fused`: never all scores at once", _fused


def _cell(subject: Subject, mask: Mask, what: str, **how: Any) -> str:
    built = kernel(subject, *how)
    if built is None:
        return "no"
    q, k, v = heads(4, mask.n_queries, 1), heads(2, mask.n_keys, 2), heads(2, mask.n_keys, 3)
    close(subject, q, k, v, mask, what, **how)
    return "yes" if built.trains(q.device) else "values"


def _dropout(subject: Subject) -> str:
    if kernel(subject, "dropout") is None:
        return "no"
    dropout_drops(subject)
    return "yes"


def _fused(subject: Subject) -> str:
    built = kernel(subject, "fused")
    if built is None:
        return "no"
    q, k, v = heads(4, 7, 1), heads(2, 7, 2), heads(2, 7, 3).requires_grad_()
    y = built.attend(q, k, v, Mask(7, 7), scale=1.0)
    step = y.grad_fn
    while step is not None and "Flash" not in type(step).__name__:
        step = step.next_functions[0][0]
    if step is None:
        raise AssertionError(f"{subject}: its output comes from no fused kernel")
    return "yes"


def refusal(subject: Subject, feature: str) -> str:
    """The line by which the backend refuses a feature when the model is built."""
    try:
        subject.build(tiny.DIMS).pick(frozenset({feature}))
    except RequestError as error:
        return str(error)
    raise AssertionError(f"{subject} does not refuse {feature}")


if __name__ == "__main__":
    import txlab.schema  # noqa: F401  registers every option

    print(table(), end="")
