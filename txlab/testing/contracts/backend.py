"""Attention backends: all of them compute one function, and say which parts of it they cannot."""

from typing import Any

import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.blocks import BlockGraph
from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, finite, refused, same
from txlab.testing.contracts.network import ends
from txlab.testing.harness import Subject, contract

BACKEND = "model.backend"


def kernel(subject: Subject, *features: str) -> Any:
    """The backend that computes for an attention with these features; None where it cannot."""
    try:
        return subject.build(tiny.DIMS).pick(frozenset(features))
    except RequestError:
        return None


def definition(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    *,
    scale: float,
    score: Any = None,
    softcap: Any = None,
    sink_logit: Any = None,
) -> Tensor:
    """Attention written out query by query, in float64: sum over keys of exp(score) v / sum exp."""
    rows = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h // (q.shape[1] // k.shape[1])
            for i in range(q.shape[2]):
                at = [torch.tensor(n) for n in (b, h, i)]
                keys = torch.arange(k.shape[2])
                seen = mask.allowed(at[0], at[1], at[2], keys).expand(len(keys))
                scores = k[b, g].double() @ q[b, h, i].double() * scale
                if softcap is not None:
                    scores = softcap * torch.tanh(scores / softcap)
                if score is not None:
                    query, places = mask.index_of(at[0], at[2]), keys
                    if mask.valid is not None:
                        places = torch.tensor([int(mask.valid[b, :n].sum()) for n in keys])
                        query = places[query]
                    scores = scores + score(at[1], query, places).double()
                terms = scores[seen].exp()
                total = terms.sum() + (0 if sink_logit is None else sink_logit[h].double().exp())
                values = terms @ v[b, g, seen].double()
                rows.append(values / total if seen.any() else 0 * v[0, 0, 0].double())
    return torch.stack(rows).reshape(*q.shape[:3], v.shape[-1])


def heads(n: int, t: int, seed: int, rows: int = 2) -> Tensor:
    return tiny.floats(rows, n, t, 8, seed=seed)


def masks(t: int = 7) -> dict[str, Mask]:
    """One mask of each kind, for t queries; the cached ones have more keys."""
    valid = torch.ones(2, t, dtype=torch.bool)
    valid[0, : t // 2] = False
    between = torch.arange(t).expand(2, -1) % torch.tensor([[3], [t]]) != 1
    documents = torch.stack([torch.arange(t) > 2, torch.arange(t) > 4]).long()
    named = torch.arange(t).expand(2, -1) % torch.tensor([[4], [t]]) == 1
    graph = BlockGraph(size=1, n_random=1, n_window=1, n_global=1)
    index = torch.tensor([[t], [t - 3]]) + torch.arange(3)
    order = torch.tensor([1, 0, -1, 2 * t])  # the last slot is an empty one
    return {
        "causal": Mask(t, t),
        "full": Mask(t, t, causal=False),
        "causal with left padding": Mask(t, t, valid=valid),
        "full with padding": Mask(t, t, causal=False, valid=valid),
        "padding between tokens": Mask(t, t, valid=between),
        "documents": Mask(t, t, documents=documents),
        "documents with padding": Mask(t, t, documents=documents, valid=valid),
        "window": Mask(t, t, window=2),
        "window and sinks": Mask(t, t, window=2, sinks=1),
        "sinks of documents": Mask(t, t, documents=documents, valid=valid, window=1, sinks=2),
        "two-sided window": Mask(t, t, causal=False, window=2),
        "window over padding": Mask(t, t, valid=between, window=2),
        "global tokens": Mask(t, t, window=2, spares_globals=True, globals_=named),
        "global tokens, both ways, padding": Mask(
            t, t, causal=False, window=1, spares_globals=True, globals_=named, valid=between
        ),
        "random blocks": Mask(t, t, blocks=graph),
        "random blocks, both ways": Mask(t, t, causal=False, blocks=graph),
        "random blocks of documents": Mask(t, t, documents=documents, valid=valid, blocks=graph),
        "one query on a cache": Mask(1, t, q_index=t - 1),
        "window on a cache": Mask(1, t, q_index=t - 1, window=3),
        "chunk on a cache": Mask(3, t + 3, q_index=t),
        "uneven rows on a cache": Mask(3, t + 3, q_index=index),
        "keys out of order": Mask(2, 4, q_index=index[:, :2], slots=index[:, [0]] - order),
    }


def close(
    subject: Subject, q: Tensor, k: Tensor, v: Tensor, mask: Mask, what: str, **how: Any
) -> None:
    """Values and gradients of the subject equal the definition's."""
    found = []
    features = [name for name, value in how.items() if value is not None]
    built = kernel(subject, *features)
    functions: tuple[Any, Any] = (definition, built.attend)
    for attend in functions:
        leaves = [x.clone().requires_grad_(built.trains(x.device)) for x in (q, k, v)]
        if attend is not definition:
            built.prepare(mask, q)
        y = attend(*leaves, mask, scale=8**-0.5, **how)
        expect(y.requires_grad == built.trains(q.device), f"{what}: the output has no gradient")
        if y.requires_grad:
            ends(y.float()).backward()
        slopes = [x.grad for x in leaves if x.grad is not None]
        found.append([y.detach().float(), *slopes])
    names = ("output", "dq", "dk", "dv")[: len(found[0])]
    for name, expected, actual in zip(names, *found, strict=True):
        same(actual, expected, f"{what}: {name}", 2e-5)


@contract(BACKEND)
def equals_the_definition(subject: Subject) -> None:
    """Values and gradients equal attention written out query by query, for every kind of mask."""
    for what, mask in masks().items():
        q, k, v = heads(4, mask.n_queries, 1), heads(2, mask.n_keys, 2), heads(2, mask.n_keys, 3)
        close(subject, q, k, v, mask, what)


@contract(BACKEND)
def scores_and_caps(subject: Subject) -> None:
    """A positional score, a soft cap and a sink, where supported, are those of the definition."""

    def score(h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return -0.3 * (h + 1) * (q - k).abs()

    cap, sink = {"softcap": 0.5}, {"sink_logit": torch.tensor([-1.0, 0.0, 1.0, 2.0])}
    scored = {"score": score}
    for how in (scored, cap, sink, scored | cap, scored | cap | sink):
        if kernel(subject, *how) is None:
            continue
        for name in (
            "causal",
            "causal with left padding",
            "padding between tokens",
            "uneven rows on a cache",
        ):
            mask = masks()[name]
            q, k, v = (
                heads(4, mask.n_queries, 1),
                heads(2, mask.n_keys, 2),
                heads(2, mask.n_keys, 3),
            )
            close(subject, q, k, v, mask, f"{name} with {' and '.join(how)}", **how)


@contract(BACKEND)
def blind_rows_are_zero(subject: Subject) -> None:
    """A query that may see nothing yields zeros and finite gradients, in float32 and bfloat16."""
    valid = torch.ones(2, 6, dtype=torch.bool)
    valid[0, :2] = False
    valid[1] = False
    mask = Mask(6, 6, valid=valid)
    assert mask.valid is not None
    for dtype in (torch.float32, torch.bfloat16):
        trains = kernel(subject).trains(mask.valid.device)
        q, k, v = (heads(n, 6, n).to(dtype).requires_grad_(trains) for n in (4, 2, 2))
        y = kernel(subject).attend(q, k, v, mask, scale=1.0)
        finite(y, f"output in {dtype}")
        expect(
            not y[0, :, :2].any() and not y[1].any(), f"{dtype}: rows that see nothing are not zero"
        )
        if not trains:
            continue
        ends(y).backward()
        for name, x in (("q", q), ("k", k), ("v", v)):
            assert x.grad is not None
            finite(x.grad, f"gradient of {name} in {dtype}")
            expect(
                not x.grad[1].any(), f"gradient of {name} in a row that sees nothing is not zero"
            )


@contract(BACKEND)
def gives_the_worked_numbers(subject: Subject) -> None:
    """The worked example: three tokens, two channels, to three decimals."""
    q = torch.tensor([[1.0, 0], [0, 1], [1, 1]])[None, None]
    v = torch.tensor([[1.0, 2], [3, 4], [5, 6]])[None, None]
    full = torch.tensor([[3.0, 4.0], [3.407, 4.407], [3.510, 4.510]])
    causal = torch.tensor([[1.0, 2.0], [2.340, 3.340], [3.510, 4.510]])
    for expected, is_causal in ((full, False), (causal, True)):
        mask = Mask(3, 3, causal=is_causal)
        y = kernel(subject).attend(q, q, v, mask, scale=2**-0.5)[0, 0]
        same(y, expected, f"causal={is_causal}", 6e-4)


@contract(BACKEND)
def groups_heads_in_order(subject: Subject) -> None:
    """Query head i reads key/value head i // (h / g): 4 over 2 heads read 0, 0, 1, 1."""
    v = torch.arange(2.0).view(1, 2, 1, 1).expand(1, 2, 5, 8)
    y = kernel(subject).attend(heads(4, 5, 1, 1), heads(2, 5, 2, 1), v, Mask(5, 5), scale=1.0)
    found = [round(float(x)) for x in y[0, :, -1, 0]]
    expect(found == [0, 0, 1, 1], f"query heads read {found}, expected [0, 0, 1, 1]")


@contract(BACKEND)
def lengths_in_turn(subject: Subject) -> None:
    """One backend object serves lengths 1, 127, 128, 129 and 5 one after the other."""
    built = kernel(subject)
    for t in (1, 127, 128, 129, 5):
        q, k, v = (tiny.floats(1, n, t, 4, seed=n) for n in (2, 1, 1))
        q.requires_grad_(built.trains(q.device))
        documents = (torch.arange(t) >= t // 2).long()[None]
        mask = Mask(t, t, documents=documents)
        y = built.attend(q, k, v, mask, scale=0.5)
        seen = mask.dense(q.device)
        scores = (q @ k.transpose(-1, -2) * 0.5).masked_fill(~seen, float("-inf"))
        same(y, scores.softmax(-1) @ v, f"{t} tokens", 1e-5)
        if not built.trains(q.device):
            continue
        ends(y).backward()
        assert q.grad is not None
        finite(q.grad, f"gradient at {t} tokens")


@contract(BACKEND)
def bfloat16_is_near(subject: Subject) -> None:
    """In bfloat16 the output is the float32 one within rounding."""
    q, k, v = (heads(n, 9, n) for n in (4, 2, 2))
    exact = kernel(subject).attend(q, k, v, Mask(9, 9), scale=0.35)
    found = kernel(subject).attend(*(x.bfloat16() for x in (q, k, v)), Mask(9, 9), scale=0.35)
    expect(found.dtype == torch.bfloat16, f"bfloat16 in, {found.dtype} out")
    same(found.float(), exact, "bfloat16", 3e-2)


@contract(BACKEND)
def dropout_drops(subject: Subject) -> None:
    """Dropout, where supported, changes the output, keeps its mean, and follows torch's seed."""
    q, k = torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 64, 8)
    v, mask = torch.ones(1, 1, 64, 8), Mask(4, 64, causal=False)
    built, found = kernel(subject, "dropout"), []
    if built is None:
        return
    for seed in (1, 1, *range(2, 20)):
        with tiny.seeded(seed):
            found.append(built.attend(q, k, v, mask, scale=1.0, dropout=0.5))
    same(found[1], found[0], "the same seed again", 0.0)
    differ(found[2], found[0], "another seed")
    mean = float(torch.stack(found[1:]).mean())
    expect(abs(mean - 1) < 0.05, f"dropout moves the mean from 1 to {mean:.3f}")


@contract(BACKEND)
def trains_or_says_not(subject: Subject) -> None:
    """Where it has no gradients it says so in one line, instead of giving none."""
    built = kernel(subject)
    q, k, v = (heads(n, 5, n).requires_grad_() for n in (4, 2, 2))
    if built.trains(q.device):
        expect(built.attend(q, k, v, Mask(5, 5), scale=1.0).requires_grad, "no gradient")
        return
    error = None
    try:
        built.attend(q, k, v, Mask(5, 5), scale=1.0)
    except Exception as caught:
        error = caught
    refused(error, ("backward", subject.option.name), "a forward pass that asks for gradients")


@contract(BACKEND)
def refuses_what_it_cannot(subject: Subject) -> None:
    """A feature it does not compute is refused when the model is built, by name."""
    error = None
    try:
        subject.build(tiny.DIMS).pick(frozenset({"antigravity"}))
    except Exception as caught:
        error = caught
    refused(error, ("antigravity", subject.option.name), "an unknown feature")
