"""Sums over the past in chunks: quadratic inside a chunk, a carried state between them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64
"""Tokens a chunk. The work is T x CHUNK inside and T x key channels between: about as much."""


def causal_sums(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    *,
    documents: Int[Tensor, "#b t"] | None = None,
    state: Float[Tensor, "b h k v"] | None = None,
    strict: bool = False,
) -> tuple[Float[Tensor, "b h t v"], Float[Tensor, "b h k v"]]:
    """y_i = sum over j <= i of (q_i . k_j) v_j, and the state sum over all j of k_j v_j^T.

    `documents`: j must be in i's document, and each document stands in one piece; the state then
    means nothing. `state`: what went before. `strict`: j < i.
    """
    t = q.shape[2]
    n = min(CHUNK, t)
    q, k, v = (_split(x, n) for x in (q, k, v))
    docs = None if documents is None else _split(documents[..., None], n, -1)[..., 0]
    seen = torch.ones(n, n, dtype=torch.bool, device=q.device).tril(-1 if strict else 0)
    if docs is not None:
        seen = seen & (docs[..., :, None] == docs[..., None, :]).unsqueeze(1)
    y = (q @ k.transpose(-1, -2)).masked_fill(~seen, 0.0) @ v
    if docs is not None:
        # Of a chunk, only its last document goes on; only that document's tokens read the state.
        k = k * (docs == docs[..., -1:])[:, None, ..., None]
    before, state = _carry(k.transpose(-1, -2) @ v, state, docs)
    if docs is not None:
        earlier = F.pad(docs[:, :-1, -1:], (0, 0, 1, 0), value=-1)
        q = q * (docs == earlier)[:, None, ..., None]
    y = y + q @ before
    return y.flatten(2, 3)[:, :, :t], state


def all_sums(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    *,
    documents: Int[Tensor, "#b t"] | None = None,
) -> Float[Tensor, "b h t v"]:
    """y_i = sum over all j (of i's document) of (q_i . k_j) v_j."""
    if documents is None:
        return q @ (k.transpose(-1, -2) @ v)
    up, _ = causal_sums(q, k, v, documents=documents)
    back = (x.flip(2) for x in (q, k, v))
    down, _ = causal_sums(*back, documents=documents.flip(1), strict=True)
    return up + down.flip(2)


def _carry(
    sums: Float[Tensor, "b h c k v"],
    state: Float[Tensor, "b h k v"] | None,
    docs: Int[Tensor, "#b c n"] | None,
) -> tuple[Float[Tensor, "b h c k v"], Float[Tensor, "b h k v"]]:
    """The state before each chunk, of the document that the chunk before ends in, and the last."""
    if docs is None:
        if state is not None:
            sums = torch.cat((state.unsqueeze(2), sums), 2)
        through = sums.cumsum(2)
        if state is None:
            through = F.pad(through, (0, 0, 0, 0, 1, 0))
        return through[:, :, :-1], through[:, :, -1]
    last = docs[..., -1]
    upto = torch.ones(2 * last.shape[1:], dtype=torch.bool, device=last.device).tril()
    joins = (upto & (last[:, :, None] == last[:, None, :])).to(sums.dtype)
    flat = joins.unsqueeze(1) @ sums.flatten(3)
    through = F.pad(flat.unflatten(3, sums.shape[3:]), (0, 0, 0, 0, 1, 0))
    return through[:, :, :-1], through[:, :, -1]


def _split(x: Tensor, n: int, fill: int = 0) -> Tensor:
    """The second-last axis as chunks of n tokens, the last one filled up."""
    missing = -x.shape[-2] % n
    if missing:
        x = F.pad(x, (0, 0, 0, missing), value=fill)
    return x.unflatten(-2, (-1, n))
