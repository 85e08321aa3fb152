"""Token mixers: who sees whom. Checked on the bare mixer, with the reference backend."""

from typing import Any

import torch
from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.mask import Mask
from txlab.nn.position import RoPE
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, finite, gradients, same, same_gradients
from txlab.testing.contracts.network import ends
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import MixerProbe, probe

ATTENTION = "model.attn"
GARBAGE = 50.0
"""What stands at places that nobody may look at: large enough to show in any average."""


def rotary(subject: Subject, **fields: Any) -> MixerProbe:
    """The mixer's probe with rotary positions."""
    built = probe(subject, **fields)
    built.position = RoPE(RoPE.Config(), built.dims)
    return built


def alike(subject: Subject) -> dict[str, Any]:
    """Fields with which no token is special by its place in the row alone."""
    return {"n_globals": 0} if subject.has("n_globals") else {}


def influence(built: MixerProbe, length: int, mask: Mask | None = None) -> Tensor:
    """Whether output i depends on input j, bool [t t], by gradient."""
    x = built.inputs(1, length).requires_grad_()
    y = built(x, mask=mask)
    rows = []
    for i in range(length):
        (slope,) = torch.autograd.grad(ends(y[:, i]), x, retain_graph=True)
        rows.append(slope[0].abs().sum(-1))
    return torch.stack(rows) > 0


@contract(ATTENTION)
def causal_by_perturbation(subject: Subject) -> None:
    """Changing a token changes no output before it, and its own and some later one."""
    built = rotary(subject)
    x = built.inputs(2, 9)
    y = built(x)
    for place in (0, 4, 8):
        changed = x.clone()
        changed[:, place] = built.inputs(seed=3)[:, 0]
        z = built(changed)
        same(z[:, :place], y[:, :place], f"outputs before changed token {place}", 1e-6)
        differ(z[:, place], y[:, place], f"output of changed token {place}")
        if place < 8:
            differ(z[:, place + 1 :], y[:, place + 1 :], f"outputs after changed token {place}")


@contract(ATTENTION)
def causal_by_gradient(subject: Subject) -> None:
    """No output depends on a later input; each depends on its own and on some earlier one."""
    seen = influence(rotary(subject), 9)
    leaks = seen.triu(1).nonzero().tolist()
    expect(not leaks, f"output i depends on a later input j at (i, j) = {leaks[:3]}")
    expect(bool(seen.diagonal().all()), "an output does not depend on its own token")
    expect(bool(seen.tril(-1)[1:].any(1).all()), "an output depends on no earlier token: no mixing")


@contract(ATTENTION)
def padding_isolated(subject: Subject) -> None:
    """Real tokens have the outputs they have alone, wherever in the row pads stand."""
    built = rotary(subject)
    lengths = (3, 8, 5)
    for side, valid in tiny.paddings(lengths).items():
        positions = (valid.cumsum(1) - 1).clamp(min=0)
        x = built.inputs(3, 8)
        for fill in (0.0, GARBAGE):
            x = torch.where(valid[..., None], x, fill)
            y = built(x, mask=Mask(8, 8, valid=valid), positions=positions)
            finite(y, "output of a padded batch")
            for row in range(3):
                alone = built(x[row, valid[row]][None])[0]
                same(y[row, valid[row]], alone, f"row of {lengths[row]} tokens, padded {side}")


@contract(ATTENTION)
def documents_isolated(subject: Subject) -> None:
    """Documents packed in a row give the outputs and weight gradients they give separately."""
    built = rotary(subject)
    sizes = (4, 1, 6)
    documents = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))[None]
    positions = torch.cat([torch.arange(size) for size in sizes])[None]
    x = built.inputs(1, sum(sizes))
    weights = tiny.floats(*x.shape, seed=9)
    built.zero_grad()
    packed = built(x, mask=Mask(11, 11, documents=documents), positions=positions)
    (packed * weights).sum().backward()
    found = gradients(built)
    built.zero_grad()
    for number, part in enumerate(x.split(sizes, dim=1)):
        inside = documents == number
        alone = built(part)
        (alone * weights[inside][None]).sum().backward()
        same(packed[inside], alone[0], f"document {number} of a packed row")
    same_gradients(found, gradients(built), "packed documents", 1e-5)


@contract(ATTENTION)
def blind_rows_are_harmless(subject: Subject) -> None:
    """Rows that see nothing leave all outputs and gradients finite, and have no influence."""
    built = rotary(subject)
    valid = tiny.padded((3, 6, 4), left=True)
    valid[2] = False
    x = built.inputs(3, 6).requires_grad_()
    mask, positions = Mask(6, 6, valid=valid), (valid.cumsum(1) - 1).clamp(min=0)
    y = built(x, mask=mask, positions=positions)
    y = built(y, mask=mask, positions=positions)
    finite(y, "output")
    built.zero_grad()
    ends(y.where(valid[..., None], 0.0)).backward()
    assert x.grad is not None
    finite(x.grad, "gradient of the input")
    expect(not bool(x.grad[~valid].any()), "real outputs have a gradient to padding")
    for name, gradient in gradients(built).items():
        finite(gradient, f"gradient of {name}")


@contract(ATTENTION)
def permutation_equivariant(subject: Subject) -> None:
    """Without positions and causality, permuted tokens give permuted outputs."""
    built = probe(subject, **alike(subject))
    x = built.inputs(2, 8)
    order = torch.tensor([5, 0, 7, 2, 1, 6, 3, 4])
    mask = Mask(8, 8, causal=False)
    same(built(x[:, order], mask=mask), built(x, mask=mask)[:, order], "output of permuted tokens")


@contract(ATTENTION)
def gradients_are_exact(subject: Subject) -> None:
    """In float64 the gradients of input and weights are those of finite differences."""
    dims = Dims(dim=6, n_heads=2, head_dim=4, n_layers=1, context=16, vocab_size=17)
    built = probe(subject, dims).double()
    built.position = RoPE(RoPE.Config(), dims)
    x = built.inputs(2, 4).requires_grad_()
    names, weights = zip(*built.named_parameters(), strict=True)
    for what, valid in (("no padding", None), ("padding", tiny.padded((4, 2), left=True))):
        mask = Mask(4, 4, valid=valid)

        def output(x: Tensor, *weights: Tensor, mask: Mask = mask) -> Tensor:
            given = dict(zip(names, weights, strict=True))
            return torch.func.functional_call(built, given, (x,), {"mask": mask})

        try:
            torch.autograd.gradcheck(output, (x, *weights), fast_mode=True)
        except RuntimeError as error:
            raise AssertionError(f"{what}: {' '.join(str(error).split())[:200]}") from error


@contract(ATTENTION, when=lambda subject: subject.option.cls.attends)
def backends_agree(subject: Subject) -> None:
    """Every backend that takes this mixer gives the outputs and gradients of `math`."""
    from txlab.nn.backend import backend

    reference = rotary(subject)
    valid = tiny.padded((9, 4), left=True)
    documents = (torch.arange(9) > 3).long().expand(2, -1)
    masks = {
        "causal": Mask(9, 9),
        "full": Mask(9, 9, causal=False),
        "padding": Mask(9, 9, valid=valid),
        "documents": Mask(9, 9, documents=documents),
        "window": Mask(9, 9, window=3),
    }
    for name, option in backend.options.items():
        if name == "math" or not reference.part.features <= option.cls.supports:
            continue
        built = rotary(subject)
        built.backend = backend.build(option.config(), built.dims).pick(built.part.features)
        for what, mask in masks.items():
            x = built.inputs(2, 9)
            outputs, found = [], []
            for each in (reference, built):
                each.zero_grad()
                with torch.set_grad_enabled(each.backend.trains(x.device)):
                    y = each(x, mask=mask)
                if y.requires_grad:
                    ends(y).backward()
                outputs.append(y.detach())
                found.append(gradients(each))
            same(outputs[1], outputs[0], f"{name}, {what} mask")
            if built.backend.trains(x.device):
                same_gradients(found[1], found[0], f"{name}, {what} mask")
