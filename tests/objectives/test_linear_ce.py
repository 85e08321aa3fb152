"""The fused cross-entropy against torch's own on whole logits."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from txlab.data.batch import IGNORE
from txlab.objectives import linear_ce_sum


class Seen(TorchDispatchMode):
    """What operations ran: the most elements one returned, and the number of matrix products."""

    largest = 0
    products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.numel())
        self.products += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm_)
        return out


def make(n=23, d=6, v=17, dtype=torch.float64, ignored=(2, 7, 8)):
    torch.manual_seed(0)
    states = torch.randn(n, d, dtype=dtype, requires_grad=True)
    weight = torch.randn(v, d, dtype=dtype, requires_grad=True)
    bias = torch.randn(v, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, v, (n,))
    labels[list(ignored)] = IGNORE
    return states, weight, bias, labels


def reference(states, weight, labels, bias=None, z_loss=0.0, label_smoothing=0.0):
    logits = F.linear(states, weight, bias)
    lse = logits.logsumexp(-1)[labels != IGNORE]
    loss = F.cross_entropy(
        logits, labels, ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing
    )
    return loss + z_loss * (lse**2).sum()


@pytest.mark.parametrize("ignored", [(), (2, 7, 8)])
@pytest.mark.parametrize("chunk", [1, 4, 23, 1024])
@pytest.mark.parametrize(("z_loss", "smoothing"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.2), (0.3, 0.1)])
def test_equals_torch(chunk, z_loss, smoothing, ignored):
    """Values and gradients, with any upstream factor and any chunk."""
    states, weight, bias, labels = make(ignored=ignored)
    wanted = (states, weight, bias)
    fields = {"z_loss": z_loss, "label_smoothing": smoothing}
    loss, nll = linear_ce_sum(states, weight, labels, bias=bias, chunk=chunk, **fields)
    expected = reference(states, weight, labels, bias, **fields)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, reference(states, weight, labels, bias).detach())
    assert not nll.requires_grad
    ours = torch.autograd.grad(-3 * loss, wanted)
    for a, b in zip(ours, torch.autograd.grad(-3 * expected, wanted), strict=True):
        torch.testing.assert_close(a, b)


def test_gradcheck():
    states, weight, bias, labels = make(n=5, d=3, v=4, ignored=(1,))

    def loss(states, weight, bias):
        return linear_ce_sum(
            states, weight, labels, bias=bias, z_loss=0.1, label_smoothing=0.2, chunk=2
        )[0]

    assert torch.autograd.gradcheck(loss, (states, weight, bias))


def test_ignored_labels_have_no_gradient_and_no_loss():
    states, weight, _, labels = make()
    with torch.no_grad():
        states[labels == IGNORE] = 1e4
    loss, _ = linear_ce_sum(states, weight, labels, z_loss=1.0, label_smoothing=0.1)
    g_states, g_weight = torch.autograd.grad(loss, (states, weight))
    assert g_states[labels == IGNORE].eq(0).all()
    assert g_states[labels != IGNORE].ne(0).any(1).all()
    assert g_weight.abs().max() < 1e4


def test_all_labels_ignored():
    states, weight, _, labels = make()
    loss, nll = linear_ce_sum(states, weight, torch.full_like(labels, IGNORE))
    loss.backward()
    assert loss.item() == nll.item() == 0
    for x in (states, weight):
        assert x.grad is not None
        assert x.grad.eq(0).all()


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_is_frozen_gets_no_gradient(frozen):
    states, weight, _, labels = make()
    expected = torch.autograd.grad(reference(states, weight, labels), (states, weight))
    inputs = [states, weight]
    inputs[frozen].requires_grad_(False)
    loss, _ = linear_ce_sum(*inputs, labels)
    (grad,) = torch.autograd.grad(loss, [inputs[1 - frozen]])
    torch.testing.assert_close(grad, expected[1 - frozen])


def test_without_grad_no_gradient_is_made():
    """Validation pays for the logits only: one product a chunk instead of three."""
    states, weight, _, labels = make(ignored=())
    expected = reference(states, weight, labels).detach()
    with torch.no_grad(), Seen() as seen:
        loss, _ = linear_ce_sum(states, weight, labels, chunk=10)
    assert seen.products == 3
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected)
    with Seen() as seen:
        linear_ce_sum(states, weight, labels, chunk=10)
    assert seen.products == 9


def test_backward_twice_through_a_kept_graph():
    states, weight, _, labels = make()
    loss, _ = linear_ce_sum(states, weight, labels)
    first = torch.autograd.grad(loss, (states, weight), retain_graph=True)
    for a, b in zip(first, torch.autograd.grad(2 * loss, (states, weight)), strict=True):
        torch.testing.assert_close(2 * a, b)


def test_confident_and_hopeless_rows_stay_finite():
    """Logits of +-1e4: probabilities underflow, the loss must not."""
    weight = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    states = torch.tensor([[1e4], [-1e4], [30.0]], requires_grad=True)
    labels = torch.tensor([0, 0, 1])
    loss, _ = linear_ce_sum(states, weight, labels)
    assert loss.item() == pytest.approx(0 + 2e4 + 60)
    for grad in torch.autograd.grad(loss, (states, weight)):
        assert grad.isfinite().all()


@pytest.mark.parametrize("whole", [False, True])
def test_bf16(whole):
    """Products in bf16, logsumexp and sums in float32, by autocast and for bf16 inputs."""
    states, weight, _, labels = make(n=512, d=32, v=64, dtype=torch.float32)
    with torch.no_grad():
        weight *= 0.2
    exact = reference(states.double(), weight.double(), labels)
    expected = torch.autograd.grad(exact, (states, weight))
    if whole:
        states, weight = (x.detach().bfloat16().requires_grad_() for x in (states, weight))
    with torch.autocast("cpu", torch.bfloat16, enabled=not whole):
        loss, nll = linear_ce_sum(states, weight, labels, chunk=64)
    assert loss.dtype == nll.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-3)
    for x, grad, true in zip(
        (states, weight), torch.autograd.grad(loss, (states, weight)), expected, strict=True
    ):
        assert grad.dtype == x.dtype
        assert (grad - true).norm() / true.norm() < 1e-2


def test_float16_does_not_overflow():
    """4096 equal logits over weights of 30: their sum is beyond 65504, their mean is not."""
    states = torch.zeros(3, 2, dtype=torch.float16, requires_grad=True)
    weight = torch.full((4096, 2), 30.0, dtype=torch.float16, requires_grad=True)
    weight.data[:2048, 0] = 28
    loss, _ = linear_ce_sum(states, weight, torch.zeros(3, dtype=torch.long))
    loss.backward()
    assert states.grad is not None
    assert states.grad[0].tolist() == pytest.approx([1, 0], abs=0.05)


@pytest.mark.parametrize("ignored", [(), (2, 7, 8)])
def test_logits_never_exist_all_at_once(ignored):
    states, weight, _, labels = make(n=64, d=4, v=32, ignored=ignored)
    with Seen() as seen:
        linear_ce_sum(states, weight, labels, chunk=8)[0].backward()
    assert seen.largest == 64 * 4
    with Seen() as seen:
        reference(states, weight, labels).backward()
    assert seen.largest == 64 * 32


def test_weight_gradient_is_summed_in_float32():
    """1024 equal rows, one a chunk: a bf16 sum stops at 256 of them (case PREC-03)."""
    states = torch.ones(1024, 2, dtype=torch.bfloat16)
    weight = torch.zeros(2, 2, dtype=torch.bfloat16, requires_grad=True)
    loss, _ = linear_ce_sum(states, weight, torch.zeros(1024, dtype=torch.long), chunk=1)
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.flatten().tolist() == [-512, -512, 512, 512]
    assert loss.item() == pytest.approx(1024 * 0.693147, rel=1e-5)


def test_a_label_beyond_the_vocabulary_is_an_error():
    states, weight, _, labels = make()
    labels[0] = 17
    with pytest.raises((IndexError, RuntimeError)):
        linear_ce_sum(states, weight, labels)
