"""Feed-forward layers against their definitions."""

import pytest
import torch

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.ffn import GEGLU, MLP, Activation, ReGLU, SwiGLU

DIMS = Dims(dim=16, n_heads=2, head_dim=8, n_layers=1, context=8, vocab_size=10)
DEFINITIONS = {
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    ),
    "relu": lambda x: x.clamp(min=0),
    "relu2": lambda x: x.clamp(min=0) ** 2,
}


def linear(layer, x):
    y = x @ layer.weight.T
    return y if layer.bias is None else y + layer.bias


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", Activation)
def test_mlp(activation, bias):
    mlp = MLP(MLP.Config(activation=activation, bias=bias), DIMS).double()
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    expected = linear(mlp.down, DEFINITIONS[activation.value](linear(mlp.up, x)))
    torch.testing.assert_close(mlp(x), expected)
    assert mlp.up.weight.shape == (64, 16)


GATES = {
    "swiglu": (SwiGLU, {}, lambda x: x * torch.sigmoid(x)),
    "geglu": (GEGLU, {}, DEFINITIONS["gelu"]),
    "geglu approximate": (GEGLU, {"approximate": True}, DEFINITIONS["gelu_tanh"]),
    "reglu": (ReGLU, {}, DEFINITIONS["relu"]),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", GATES)
def test_gated(name, bias):
    cls, fields, gate = GATES[name]
    layer = cls(cls.Config(bias=bias, **fields), DIMS).double()
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    expected = linear(layer.down, gate(linear(layer.gate, x)) * linear(layer.up, x))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(("dim", "hidden"), [(16, 64), (256, 704), (384, 1024), (4096, 10944)])
def test_gated_width(dim, hidden):
    """8/3 dim rounded up to a multiple of 64."""
    dims = Dims(dim=dim, n_heads=1, head_dim=8, n_layers=1, context=8, vocab_size=10)
    with torch.device("meta"):
        for cls in (SwiGLU, GEGLU, ReGLU):
            assert cls(cls.Config(), dims).gate.out_features == hidden


@pytest.mark.parametrize("cls", [MLP, SwiGLU, GEGLU, ReGLU])
def test_shared_fields(cls):
    assert cls(cls.Config(hidden=24), DIMS).down.in_features == 24
    assert all(hasattr(cls(cls.Config(), DIMS), name) for name in cls.out_linears)
    assert not any(name.endswith("bias") for name, _ in cls(cls.Config(), DIMS).named_parameters())
    with pytest.raises(RequestError, match="hidden"):
        cls.Config(hidden=0)
