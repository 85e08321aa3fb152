"""Norms against their definitions, on every path."""

import pytest
import torch

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.norm import DyT, LayerNorm, NoNorm, RMSNorm, norm, rms_norm, rmsnorm

DIMS = Dims(dim=16, n_heads=2, head_dim=8, n_layers=1, context=8, vocab_size=10)


@pytest.fixture(params=["small", "large"])
def path(request, monkeypatch):
    """The composite for few elements and our function for many."""
    monkeypatch.setattr(rmsnorm, "SMALL", 10**9 if request.param == "small" else 0)
    return request.param


def rms_definition(x, weight, eps):
    y = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight


def layer_definition(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight + bias


def test_layernorm_is_its_definition():
    norm = LayerNorm(LayerNorm.Config(eps=1e-3), DIMS).double()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    torch.testing.assert_close(norm(x), layer_definition(x, norm.weight, norm.bias, 1e-3))


def test_rmsnorm_is_its_definition(path):
    norm = RMSNorm(RMSNorm.Config(eps=1e-3), DIMS).double()
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    torch.testing.assert_close(norm(x), rms_definition(x, norm.weight, 1e-3))
    assert norm(torch.zeros_like(x)).eq(0).all()


@pytest.mark.parametrize("affine", [True, False])
def test_rmsnorm_gradients(path, affine):
    x = torch.randn(2, 3, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(16, dtype=torch.float64, requires_grad=True) if affine else None
    g = torch.randn_like(x)
    wanted = [p for p in (x, weight) if p is not None]
    ours = torch.autograd.grad(rms_norm(x, weight, 1e-3), wanted, g)
    expected = torch.autograd.grad(rms_definition(x, weight, 1e-3), wanted, g)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_rmsnorm_with_a_frozen_weight(path):
    x = torch.randn(2, 3, 16, requires_grad=True)
    weight = torch.rand(16)
    (grad,) = torch.autograd.grad(rms_norm(x, weight, 1e-5).sum(), [x])
    (expected,) = torch.autograd.grad(rms_definition(x, weight, 1e-5).sum(), [x])
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rmsnorm_mixed_dtypes(path, dtype, weight_dtype):
    """Statistics and products in float32, one rounding at the end; and no warning."""
    x = (torch.randn(4, 16) * 300).to(dtype).requires_grad_()
    weight = torch.rand(16).to(weight_dtype).requires_grad_()
    y = rms_norm(x, weight, 1e-5)
    assert y.dtype == dtype
    expected = rms_definition(x.double(), weight.double(), 1e-5)
    torch.testing.assert_close(y, expected.to(dtype), atol=1e-5, rtol=2**-7)
    y.float().sum().backward()
    assert x.grad is not None
    assert weight.grad is not None
    assert (x.grad.dtype, weight.grad.dtype) == (dtype, weight_dtype)


@pytest.mark.parametrize("cls", [LayerNorm, RMSNorm])
def test_statistics_in_float32_under_bf16(cls, path):
    """A mean square summed in bf16 stops at 256 ones; LayerNorm of 64 + noise loses the noise."""
    dims = Dims(dim=4096, n_heads=1, head_dim=8, n_layers=1, context=8, vocab_size=10)
    x = (torch.randn(3, 4096) + 4).bfloat16()
    norm = cls(cls.Config(), dims)
    expected = norm(x.float())
    torch.testing.assert_close(norm.bfloat16()(x).float(), expected, atol=0.02, rtol=2**-7)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(norm.float()(x.float()), expected)


@pytest.mark.parametrize(
    ("norm", "names"),
    [
        (LayerNorm(LayerNorm.Config(), DIMS), ["weight", "bias"]),
        (LayerNorm(LayerNorm.Config(bias=False), DIMS), ["weight"]),
        (LayerNorm(LayerNorm.Config(affine=False), DIMS), []),
        (RMSNorm(RMSNorm.Config(), DIMS), ["weight"]),
        (RMSNorm(RMSNorm.Config(affine=False), DIMS), []),
    ],
)
def test_parameters(norm, names):
    assert [name for name, _ in norm.named_parameters()] == names
    y = norm(torch.randn(5, 16))
    torch.testing.assert_close(y.pow(2).mean(-1), torch.ones(5), atol=1e-3, rtol=0)


def test_compiled_equals_eager(path):
    x, weight = torch.randn(3, 16), torch.rand(16)
    compiled = torch.compile(rms_norm, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, weight, 1e-5), rms_norm(x, weight, 1e-5))


def test_eps_must_be_positive():
    with pytest.raises(RequestError, match="eps"):
        RMSNorm.Config(eps=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_weight_may_be_its_distance_from_one(path, dtype):
    """Gemma's 1 + w, added up in float32: in bfloat16 the step from 1 is 2^-7."""
    unit = RMSNorm(RMSNorm.Config(offset=True), DIMS)
    assert unit.weight.eq(0).all()
    with torch.no_grad():
        unit.weight.fill_(2.0**-9)
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    expected = rms_definition(x.to(dtype).double(), torch.tensor(1 + 2.0**-9), 1e-5)
    y = unit.to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    torch.testing.assert_close(y, expected.to(dtype))
    y.sum().backward()
    assert unit.weight.grad.dtype == dtype


def test_dyt_is_its_definition():
    """weight * tanh(alpha x) + bias; alpha starts at 0.5, weight at 1, bias at 0."""
    plain = DyT(DyT.Config(), DIMS).double()
    x = 3 * torch.randn(2, 3, 16, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(plain(x), (0.5 * x).tanh())
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter)
    alpha, weight, bias = plain.alpha, plain.weight, plain.bias
    torch.testing.assert_close(plain(x), weight * torch.tanh(alpha * x) + bias)
    assert torch.autograd.gradcheck(plain, x)
    assert [name for name, _ in plain.named_parameters()] == ["alpha", "weight", "bias"]
    bare = DyT(DyT.Config(alpha=2.0, affine=False), DIMS)
    assert [(name, p.item()) for name, p in bare.named_parameters()] == [("alpha", 2.0)]


def test_none_is_the_identity():
    nothing = NoNorm(NoNorm.Config(), DIMS)
    x = torch.randn(2, 3, 16)
    assert nothing(x) is x
    assert not list(nothing.parameters())


def test_what_divides_by_nothing_has_no_eps():
    assert {name for name in norm.options if hasattr(norm.config(name), "eps")} == {
        "layernorm",
        "rmsnorm",
    }


@pytest.mark.parametrize("fields", [{"offset": True, "affine": False}, {"eps": 0.0}])
def test_rmsnorm_refuses(fields):
    with pytest.raises(RequestError, match=next(iter(fields))):
        RMSNorm.Config(**fields)


def test_dyt_refuses_a_slope_of_zero():
    with pytest.raises(RequestError, match="alpha"):
        DyT.Config(alpha=0.0)
