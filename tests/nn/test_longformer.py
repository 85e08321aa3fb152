"""Window and global tokens: the explicit pattern, in full passes of any kind and on the cache."""

from typing import Any

import pytest
import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.attention.longformer import Longformer
from txlab.nn.backend import SDPA, Banded, Math
from txlab.nn.mask import Mask
from txlab.nn.pattern import Pattern
from txlab.nn.position import ALiBi, RoPE
from txlab.testing import tiny
from txlab.testing.probes import MixerProbe
from txlab.testing.tiny import DIMS, floats

W = 3
BACKENDS = {
    "math": lambda: Math(Math.Config(), DIMS),
    "sdpa": lambda: SDPA(SDPA.Config(), DIMS),
    "banded": lambda: Banded(Banded.Config(run=4), DIMS),
}


def built(backend: str = "math", **fields: Any) -> MixerProbe:
    part = Longformer(Longformer.Config(window=W, **fields), DIMS.at(0))
    tiny.shake(part)
    probe = MixerProbe(part, DIMS, backend=BACKENDS[backend]())
    probe.position = RoPE(RoPE.Config(), DIMS)
    return probe.eval()


def dense(probe: MixerProbe, x: Tensor, special: Tensor, seen: Tensor, positions: Tensor) -> Tensor:
    """The layer written out: `special` [b t] tokens are global, `seen` [b q k] without a window."""
    part, n = probe.part, x.shape[1]
    distance = torch.arange(n)[:, None] - torch.arange(n)
    near = seen & ((distance.abs() < W) | special[:, None, :])
    angles = probe.position.prepare(positions)

    def look(q: Any, k: Any, v: Any, pattern: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (4, 8)).transpose(1, 2) for f in (q, k, v))
        q, k = probe.position.rotate(q, k, angles)
        scores = q @ k.transpose(-1, -2) * 8**-0.5
        scores = scores.masked_fill(~pattern[:, None], float("-inf"))
        return scores.softmax(-1).nan_to_num(0) @ v

    y = look(part.q, part.k, part.v, near)
    own = part.q_global is not None
    far = (part.q_global, part.k_global, part.v_global) if own else (part.q, part.k, part.v)
    y = torch.where(special[:, None, :, None], look(*far, seen), y)
    return part.o(y.transpose(1, 2).flatten(2))


def names(n: int) -> Tensor:
    """Global tokens of three rows: none, the last, and every third."""
    rows = torch.zeros(3, n, dtype=torch.bool)
    rows[1, -1] = True
    rows[2, ::3] = True
    return rows


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_length_and_number_of_globals_is_the_explicit_pattern(backend, causal, own) -> None:
    probe = built(backend, global_projections=own)
    for n in (1, W - 1, W, W + 1, 2 * W + 3, 19):
        x, special = floats(3, n, DIMS.dim).requires_grad_(), names(n)
        seen = torch.ones(n, n, dtype=torch.bool)
        seen = (seen.tril() if causal else seen).expand(3, -1, -1)
        wanted = dense(probe, x, special, seen, torch.arange(n)[None])
        found = probe(x, mask=Mask(n, n, causal=causal, globals_=special))
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        weights = floats(*wanted.shape, seed=3)
        slopes = [
            torch.autograd.grad((y * weights).sum(), [x, *probe.parameters()], allow_unused=True)
            for y in (found, wanted)
        ]
        for one, other in zip(*slopes, strict=True):
            one = torch.zeros(()) if one is None else one
            other = torch.zeros(()) if other is None else other
            torch.testing.assert_close(one, other.expand_as(one), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_and_documents(backend: str, causal: bool, named: bool) -> None:
    probe, n = built(backend, n_globals=2), 13
    x = floats(2, n, DIMS.dim)
    valid = tiny.padded((n, 9), left=True)
    documents = torch.repeat_interleave(torch.arange(3), torch.tensor([7, 2, 4])).expand(2, -1)
    for kind in ("padding", "documents", "both"):
        padded, packed = kind != "documents", kind != "padding"
        there = valid if padded else torch.ones_like(valid)
        group = documents if packed else torch.zeros_like(documents)
        rank = torch.stack(
            [
                torch.stack(
                    [(there[b, :i] & (group[b, :i] == group[b, i])).sum() for i in range(n)]
                )
                for b in range(2)
            ]
        )
        special = (torch.arange(n).expand(2, -1) % 5 == 3) if named else rank < 2
        seen = (group[:, :, None] == group[:, None]) & there[:, None]
        seen = seen.tril() if causal else seen
        mask = Mask(
            n,
            n,
            causal=causal,
            documents=documents if packed else None,
            valid=valid if padded else None,
            globals_=special if named else None,
        )
        found = probe(x, mask=mask)[there]
        wanted = dense(probe, x, special & there, seen, torch.arange(n)[None])[there]
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@torch.no_grad()
def test_extra_pads_change_no_row_whatever_its_length_and_globals(backend, causal, own) -> None:
    """MASK-10: in one batch, padded left, right and between tokens; a row of each length, with
    none, one or several global tokens."""
    probe = built(backend, global_projections=own)
    lengths = (1, W - 1, W, W + 1, 2 * W + 3, 2 * W + 3, 14)
    special = [torch.arange(n) % (row + 2) == 1 for row, n in enumerate(lengths)]
    special[4][:] = False
    for side, valid in tiny.paddings(lengths).items():
        x, marked = floats(7, 14, DIMS.dim), torch.ones(7, 14, dtype=torch.bool)
        marked[valid] = torch.cat(special)
        mask = Mask(14, 14, causal=causal, valid=valid, globals_=marked)
        found = probe(x, mask=mask, positions=(valid.cumsum(1) - 1).clamp(min=0))
        for row, n in enumerate(lengths):
            seen = torch.ones(1, n, n, dtype=torch.bool)
            seen, one = seen.tril() if causal else seen, x[row : row + 1, valid[row]]
            wanted = dense(probe, one, special[row][None], seen, torch.arange(n)[None])[0]
            torch.testing.assert_close(found[row, valid[row]], wanted, atol=1e-5, rtol=1e-5)
            assert valid[row].sum() == n, side


def test_pads_behind_a_row_change_nothing_and_a_wide_window_is_full_attention() -> None:
    probe = built()
    x = floats(1, 19, DIMS.dim)
    alone = probe(x[:, :7], mask=Mask(7, 7, causal=False))
    valid = torch.arange(19)[None] < 7
    padded = probe(x, mask=Mask(19, 19, causal=False, valid=valid))
    torch.testing.assert_close(padded[:, :7], alone, atol=1e-5, rtol=1e-5)
    wide = MixerProbe(Longformer(Longformer.Config(window=19, n_globals=0), DIMS.at(0)), DIMS)
    wide.part.load_state_dict(probe.part.state_dict())
    wide.position = probe.position
    seen = torch.ones(1, 19, 19, dtype=torch.bool)
    none = torch.zeros(1, 19, dtype=torch.bool)
    plain = Longformer(Longformer.Config(window=100, n_globals=0), DIMS.at(0))
    plain.load_state_dict(probe.part.state_dict())
    full = MixerProbe(plain, DIMS)
    full.position = probe.position
    y = full(x, mask=Mask(19, 19, causal=False))
    torch.testing.assert_close(wide(x, mask=Mask(19, 19, causal=False)), y)
    far = torch.zeros(1, 19, 19, dtype=torch.bool)
    assert not torch.allclose(dense(probe, x, none, seen & ~far, torch.arange(19)[None]), y)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("scheme", [RoPE, ALiBi])
@torch.no_grad()
def test_decoding_in_any_chunks_is_the_full_pass(scheme: type, named: bool, own: bool) -> None:
    model = tiny.model(
        attn=Longformer.Config(window=W, n_globals=3, global_projections=own),
        pos=scheme.Config(),
    )
    tokens = tiny.tokens(2, 14)
    special = {"globals": (torch.arange(14) % torch.tensor([[5], [4]])) == 2} if named else {}
    wanted = model(tokens, **special).states
    for sizes in ((1,) * 14, (14,), (2, 1, 5, 1, 4, 1), (9, 5)):
        cache, parts = model.new_cache(2, 14), []
        for a, b in zip((0, *torch.tensor(sizes).cumsum(0).tolist()), sizes, strict=False):
            given = {name: x[:, a : a + b] for name, x in special.items()}
            parts.append(model(tokens[:, a : a + b], cache=cache, **given).states)
        torch.testing.assert_close(torch.cat(parts, 1), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("fixed", [True, False])
@torch.no_grad()
def test_uneven_rows_decode_as_if_alone(fixed: bool, left: bool, named: bool, own: bool) -> None:
    model = tiny.model(attn=Longformer.Config(window=W, n_globals=4, global_projections=own))
    lengths, new = (3, 7, 11), 5
    rows = [tiny.tokens(1, n + new, seed=n) for n in lengths]
    special = [(torch.arange(n + new) % (n - 1) == 1)[None] for n in lengths]
    alone = [
        model(row, globals=some if named else None).states[0]
        for row, some in zip(rows, special, strict=True)
    ]
    valid = tiny.padded(lengths, left=left)
    prompt, marked = torch.full(valid.shape, 5), torch.ones_like(valid)
    for row, n in enumerate(lengths):
        prompt[row, valid[row]] = rows[row][0, :n]
        marked[row, valid[row]] = special[row][0, :n]
    cache = model.new_cache(3, 20)
    first = model(prompt, valid=valid, globals=marked if named else None, cache=cache).states
    for row, n in enumerate(lengths):
        torch.testing.assert_close(first[row, valid[row]], alone[row][:n], atol=2e-5, rtol=1e-4)
    if fixed:
        cache.fix_shapes(3, torch.device("cpu"))
    order = torch.tensor([2, 0, 1])
    cache.reorder(order)
    for step in range(new):
        at = [lengths[row] + step for row in order]
        tokens = torch.stack([rows[row][0, i : i + 1] for row, i in zip(order, at, strict=True)])
        some = torch.stack([special[row][0, i : i + 1] for row, i in zip(order, at, strict=True)])
        found = model(tokens, globals=some if named else None, cache=cache).states[:, 0]
        for row, source in enumerate(order):
            wanted = alone[source][lengths[source] + step]
            torch.testing.assert_close(found[row], wanted, atol=2e-5, rtol=1e-4)


def test_globals_are_named_from_the_first_call_on() -> None:
    model = tiny.model(attn=Longformer.Config(window=W))
    cache = model.new_cache(1, 8)
    model(tiny.tokens(1, 3), cache=cache)
    with pytest.raises(RequestError, match="name them from the first call on"):
        model(tiny.tokens(1, 1), globals=torch.ones(1, 1, dtype=torch.bool), cache=cache)


def test_globals_are_refused_where_no_layer_has_them() -> None:
    special = torch.ones(1, 3, dtype=torch.bool)
    with pytest.raises(RequestError, match=r"^globals: model\.attn=gqa has no global tokens: use "):
        tiny.model()(tiny.tokens(1, 3), globals=special)
    pattern = Pattern(attn=["gqa", "longformer"])
    assert tiny.model(pattern=pattern)(tiny.tokens(1, 3), globals=special).states.isfinite().all()


def test_memory_of_the_cache() -> None:
    part = Longformer(Longformer.Config(window=W, n_globals=2), DIMS.at(0))
    cache = part.new_cache(1, 1000, torch.device("cpu"), torch.float32)
    assert cache.near.k.shape[2] == W + 2 + 1
    assert cache.far.k.shape[2] == 2 + 1
