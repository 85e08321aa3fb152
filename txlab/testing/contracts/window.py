"""Attention with a window: W keys and not one more, in prefill, in decoding and through layers."""

from dataclasses import replace

import torch
from torch import Tensor

from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, same
from txlab.testing.contracts.attention import ATTENTION, alike, influence, rotary
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import MixerProbe

W = 3


def windowed(subject: Subject) -> bool:
    """Whether the option has a window at all."""
    return subject.has("window")


def seen_from(keys: list[int]) -> str:
    return f"keys {', '.join(map(str, keys)) or 'none'}"


@contract(ATTENTION, when=windowed)
def window_in_prefill(subject: Subject) -> None:
    """With window=3, row i of a full forward pass sees exactly keys i-2, i-1 and i."""
    seen = influence(rotary(subject, window=W, **alike(subject)), 9)
    for i in range(9):
        found, wanted = seen[i].nonzero().flatten().tolist(), list(range(max(0, i - W + 1), i + 1))
        expect(found == wanted, f"row {i} sees {seen_from(found)}, expected {seen_from(wanted)}")


@contract(ATTENTION, when=windowed)
def window_in_decoding(subject: Subject) -> None:
    """With window=3, a token decoded on the cache sees exactly itself and the two before it."""
    built = rotary(subject, window=W, **alike(subject))
    # Row i of the batch has token i changed, the last row none.
    x = built.inputs(1, 9).expand(10, -1, -1).clone()
    x[torch.arange(9), torch.arange(9)] += 1.0
    # Three at a time and three at the end: a ring of three slots alone would not hide the others.
    for chunk in (1, 2, 3):
        y = decoded(built, x, chunk)
        found = ((y[:9] - y[9]).abs().amax(-1) > 1e-6).nonzero().flatten().tolist()
        expect(
            found == [6, 7, 8],
            f"row 8 decoded in steps of {chunk} sees {seen_from(found)}, expected keys 6, 7, 8",
        )


@torch.no_grad()
def decoded(built: MixerProbe, x: Tensor, chunk: int) -> Tensor:
    """Outputs of the last tokens [b d], fed through the cache `chunk` tokens at a time."""
    cache = built.new_cache(x.shape[0], x.shape[1], x)
    steps = [built.step(part, cache) for part in x.split(chunk, dim=1)]
    return steps[-1][:, -1]


@contract(ATTENTION, when=windowed)
def window_through_layers(subject: Subject) -> None:
    """Through L layers the influence reaches exactly L(W-1) tokens back, cached or not."""
    for n_layers in (1, 2):
        reach = n_layers * (W - 1)
        model = tiny.model(
            replace(tiny.DIMS, n_layers=n_layers),
            attn=subject.config(window=W, **alike(subject)),
        )
        tokens = tiny.tokens(1, 9)
        for cached in (False, True):
            at = f"{n_layers} layers, {'cached' if cached else 'full'}"
            base = last_state(model, tokens, cached)
            for back, touches in ((reach, True), (reach + 1, False)):
                changed = tokens.clone()
                changed[:, 8 - back] = (changed[:, 8 - back] + 1) % tiny.DIMS.vocab_size
                found = last_state(model, changed, cached)
                if touches:
                    differ(found, base, f"{at}: state after a change {back} tokens back", 1e-6)
                else:
                    same(found, base, f"{at}: state after a change {back} tokens back", 0.0)


@torch.no_grad()
def last_state(model: torch.nn.Module, tokens: Tensor, cached: bool) -> Tensor:
    """Hidden state of the last token."""
    if not cached:
        return model(tokens).states[:, -1]
    cache = model.new_cache(1, tokens.shape[1])  # pyright: ignore[reportCallIssue]
    return [model(token, cache=cache).states[:, -1] for token in tokens.split(1, dim=1)][-1]


@contract(ATTENTION, when=windowed)
@torch.no_grad()
def window_counts_no_padding(subject: Subject) -> None:
    """Two tokens are as far apart as there are tokens between them: pads do not count."""
    built = rotary(subject, window=W)
    x = built.inputs(1, 12)
    for side, valid in tiny.paddings((6, 12)).items():
        mask = Mask(12, 12, valid=valid[:1])
        at, positions = valid[0], (valid[:1].cumsum(1) - 1).clamp(min=0)
        found = built(x, mask=mask, positions=positions)[:, at]
        same(found, built(x[:, at]), f"window={W}, 6 tokens among 6 pads ({side})", 1e-5)


@contract(ATTENTION, when=windowed)
def wide_window_is_none(subject: Subject) -> None:
    """A window as long as the text, or longer, is no window."""
    full = rotary(subject)
    x = full.inputs(2, 9)
    for width in (9, 10, 1000):
        same(rotary(subject, window=width)(x), full(x), f"window={width} on 9 tokens", 1e-6)
