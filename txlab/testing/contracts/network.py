"""What every part of a network keeps, whatever it computes."""

import copy

import torch
from torch import Tensor

from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, finite, gradients, same, same_gradients
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import NETWORK, Probe, probe


def ends(y: Tensor, seed: int = 9) -> Tensor:
    """A scalar that every number of y moves by a different amount."""
    return (y * tiny.floats(*y.shape, seed=seed, dtype=y.dtype)).sum()


def backward(built: Probe, x: Tensor) -> Tensor:
    """The output, after its gradients have been made."""
    built.zero_grad()
    y = built(x.requires_grad_() if x.is_floating_point() else x)
    ends(y).backward()
    return y


@contract(*NETWORK)
def keeps_shape_and_dtype(subject: Subject) -> None:
    """Returns [b t d] in the dtype it computes in, for every size, length and dtype."""
    for dims in tiny.SIZES:
        built = probe(subject, dims)
        for rows, length in ((2, 7), (1, 1), (3, dims.context)):
            y = built(built.inputs(rows, length))
            expect(
                tuple(y.shape) == (rows, length, built.width()),
                f"dim={dims.dim}: input of {rows} rows of {length} tokens gives {tuple(y.shape)}",
            )
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        built = probe(subject).to(dtype)
        x = built.inputs()
        y = built(x if not x.is_floating_point() else x.to(dtype))
        expect(y.dtype == dtype, f"a {dtype} module returns {y.dtype}")
        finite(y, f"output in {dtype}")


@contract(*NETWORK)
def finite_under_autocast(subject: Subject) -> None:
    """Output and gradients are finite under bfloat16 autocast, and near those without it."""
    built = probe(subject)
    x = built.inputs()
    exact = backward(built, x).detach()
    with torch.autocast("cpu", torch.bfloat16):
        y = built(x)
        ends(y.float()).backward()
    finite(y, "output under autocast")
    error = float((y.detach().float() - exact).norm() / exact.norm())
    expect(error < 0.1, f"output under autocast is off by {error:.0%} of its size")
    for name, gradient in gradients(built).items():
        finite(gradient, f"gradient of {name} under autocast")


@contract(*NETWORK)
def every_parameter_learns(subject: Subject) -> None:
    """Every parameter gets a gradient that is not zero."""
    built = probe(subject)
    backward(built, built.inputs(3, 9))
    for name, parameter in built.named_parameters():
        expect(parameter.grad is not None, f"{name} gets no gradient")
        expect(bool(gradients(built)[name].any()), f"the gradient of {name} is zero")
        finite(gradients(built)[name], f"gradient of {name}")


@contract(*NETWORK)
def deterministic(subject: Subject) -> None:
    """Equal seeds give equal weights; equal inputs equal outputs, whatever was computed before."""
    first, again = probe(subject, shaken=False), probe(subject, shaken=False)
    for name, tensor in first.state_dict().items():
        expect(torch.equal(tensor, again.state_dict()[name]), f"two builds differ in {name}")
    built = probe(subject)
    x, other = built.inputs(), built.inputs(3, 5, seed=5)
    with torch.no_grad():
        y = built(x).clone()
        built(other)
        expect(torch.equal(built(x), y), "the output depends on an earlier call")
        built.train()
        built(other)
        expect(torch.equal(built(x), y), "the output depends on training mode without dropout")


@contract(*NETWORK)
def leaves_its_input_alone(subject: Subject) -> None:
    """The input tensor is not written to."""
    built = probe(subject)
    x = built.inputs()
    kept = x.clone()
    with torch.no_grad():
        built(x)
    expect(torch.equal(x, kept), "the input was changed in place")


@contract(*NETWORK)
def rows_do_not_mix(subject: Subject) -> None:
    """A row's output is the same alone as in a batch."""
    built = probe(subject)
    x = built.inputs(3)
    y = built(x)
    for row in range(3):
        same(built(x[row : row + 1])[0], y[row], f"row {row} alone")


@contract(*NETWORK)
def state_survives_saving(subject: Subject) -> None:
    """A state dict loads strictly into a fresh build, which then computes the same."""
    built, fresh = probe(subject), probe(subject, seed=7)
    x = built.inputs()
    state = built.state_dict()
    held = {name for name, _ in built.named_parameters(remove_duplicate=False)}
    stray = sorted(set(state) - held)
    expect(not stray, f"buffers in the state dict: {', '.join(stray)}; state is passed, not kept")
    fresh.load_state_dict(state, strict=True)
    same(fresh(x), built(x), "output after loading", 0.0)


@contract(*NETWORK)
def deep_copies(subject: Subject) -> None:
    """A deep copy computes the same and shares nothing with the original."""
    built = probe(subject)
    x = built.inputs()
    y = built(x).detach()
    other = copy.deepcopy(built)
    same(other(x), y, "output of the copy", 0.0)
    tiny.shake(other, seed=5)
    same(built(x), y, "output of the original after its copy was changed", 0.0)
    if list(built.parameters()):
        differ(other(x), y, "output of the changed copy")


@contract(*NETWORK)
def compiles(subject: Subject) -> None:
    """`torch.compile` takes it as one graph, with the same output and gradients."""
    built = probe(subject)
    x = built.inputs()
    y = backward(built, x).detach()
    expected = gradients(built)
    torch.compiler.reset()
    built.zero_grad()
    compiled = torch.compile(built, backend="aot_eager", fullgraph=True)(x)
    ends(compiled).backward()
    same(compiled, y, "compiled output")
    same_gradients(gradients(built), expected, "compiled")
    torch.compiler.reset()


@contract(*NETWORK)
def builds_on_meta(subject: Subject) -> None:
    """Builds on the meta device with the same shapes and names, and can be filled from there."""
    from txlab.nn.init import GPT2Init

    expected = {name: p.shape for name, p in probe(subject).named_parameters()}
    with torch.device("meta"):
        built = probe(subject, shaken=False)
    found = {name: p.shape for name, p in built.named_parameters()}
    expect(found == expected, "parameters differ from those of a real build")
    real = sorted(name for name, p in built.named_parameters() if not p.is_meta)
    expect(not real, f"made in memory all the same: {', '.join(real)}")
    built.to_empty(device="cpu")
    try:
        GPT2Init(GPT2Init.Config(), built.dims).apply(built, empty=True)
    except TypeError as error:
        raise AssertionError(str(error)) from error
