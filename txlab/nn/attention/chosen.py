"""Which queries of a pass are global, and what they may see."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from txlab.nn.mask import Mask


class Chosen(NamedTuple):
    """Queries that are global, as many in each row as in the one that has most."""

    places: Int[Tensor, "#b m"] | int
    """Their places among the queries; an int: so many first ones, in every row."""
    there: Bool[Tensor, "#b m"] | None
    """False for those that only fill up a row; None: there are none."""
    mask: Mask
    """What they see: neither window nor blocks, but order, documents and padding."""

    def pick(self, x: Tensor, dim: int) -> Tensor:
        """Those of x, whose axis `dim` is that of the queries."""
        if isinstance(self.places, int):
            return x.narrow(dim, 0, self.places)
        if len(self.places) > 1 and len(x) == 1:
            x = x.expand(len(self.places), *x.shape[1:])
        return x.gather(dim, self._index(x, dim))

    def put(
        self, y: Float[Tensor, "b h t v"], new: Float[Tensor, "b h m v"]
    ) -> Float[Tensor, "b h t v"]:
        """y with `new` in their places."""
        if isinstance(self.places, int):
            return torch.cat((new, y[:, :, self.places :]), 2)
        assert self.there is not None
        new = torch.where(self.there[:, None, :, None], new, self.pick(y, 2))
        return y.scatter(2, self._index(y, 2), new)

    def _index(self, x: Tensor, dim: int) -> Tensor:
        assert isinstance(self.places, Tensor)
        shape = [1] * x.ndim
        shape[0], shape[dim] = self.places.shape
        sizes = list(x.shape)
        sizes[dim] = shape[dim]
        return self.places.view(shape).expand(sizes)


def chosen(mask: Mask, n: int) -> Chosen | None:
    """The global queries of `mask`, a body's own: those it names, else the first n of each
    document; None where there are none. Made once for all layers."""
    return mask.memo(("chosen", n), lambda: _chosen(mask, n))


def _chosen(mask: Mask, n: int) -> Chosen | None:
    if n == 0 and mask.globals_ is None:
        return None
    tensors = (mask.globals_, mask.documents, mask.valid)
    if isinstance(mask.q_index, Tensor) or any(x is not None for x in tensors):
        return _looked_up(mask, n)
    first = min(max(n - mask.q_index, 0), mask.n_queries)
    if first == 0:
        return None
    seen = mask.of(first)
    if mask.causal:
        seen = replace(seen, n_keys=mask.q_index + first)
    return Chosen(first, None, seen)


def _looked_up(mask: Mask, n: int) -> Chosen | None:
    flags = _flags(mask, n)
    if mask.globals_ is None and isinstance(mask.q_index, Tensor):
        # On a cache none of these looks farther than the last of them.
        mask = replace(mask, n_keys=min(n, mask.n_keys))
    if torch.compiler.is_compiling():  # no sizes may follow from numbers
        every = torch.arange(mask.n_queries, device=flags.device)[None]
        return Chosen(every, flags, mask.of(every))
    most = int(flags.sum(1).max())
    if most == 0:
        return None
    places = flags.long().sort(dim=1, descending=True, stable=True).indices[:, :most]
    return Chosen(places, flags.gather(1, places), mask.of(places))


def _flags(mask: Mask, n: int) -> Bool[Tensor, "#b q"]:
    """Which queries are global."""
    index = mask.q_index
    if isinstance(index, Tensor):
        there = index < mask.n_keys  # padding lies beyond
        if mask.globals_ is None:
            return there & (index < n)
        return there & mask.globals_.gather(1, index.clamp(max=mask.n_keys - 1))
    if mask.globals_ is not None:
        flags = mask.globals_[:, index : index + mask.n_queries]
    else:
        flags = mask.ranks() < n
    return flags if mask.valid is None else flags & mask.valid
