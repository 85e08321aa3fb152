"""Log-probabilities of labels: against log_softmax, in double precision, under autocast."""

import pytest
import torch

from txlab.data.batch import IGNORE
from txlab.objectives import token_logprobs
from txlab.testing.tiny import floats

N, D, V = 11, 6, 13


def inputs(dtype=torch.float64):
    states = floats(N, D, seed=1, dtype=dtype).requires_grad_()
    weight = floats(V, D, seed=2, dtype=dtype).requires_grad_()
    labels = torch.arange(N) % V
    labels[[2, 7]] = IGNORE
    return states, weight, labels


def direct(states, weight, labels):
    found = (states @ weight.T).log_softmax(1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
    return found.where(labels != IGNORE, 0)


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_equals_log_softmax_in_value_and_gradient(chunk):
    states, weight, labels = inputs()
    share = floats(N, seed=3, dtype=torch.float64)  # losses weigh tokens as they like
    found = token_logprobs(states, weight, labels, chunk=chunk)
    slopes = torch.autograd.grad(found @ share, (states, weight))
    expected = direct(states, weight, labels)
    wanted = torch.autograd.grad(expected @ share, (states, weight))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(slopes, wanted)


def test_gradcheck():
    states, weight, labels = inputs()
    assert torch.autograd.gradcheck(
        lambda s, w: token_logprobs(s, w, labels, chunk=4), (states, weight)
    )


def test_ignored_labels_are_zero_without_gradient():
    states, weight, labels = inputs()
    found = token_logprobs(states, weight, labels)
    assert not found[labels == IGNORE].any()
    (slope,) = torch.autograd.grad(found.sum(), states)
    assert not slope[labels == IGNORE].any()
    nothing = token_logprobs(states, weight, torch.full_like(labels, IGNORE))
    assert float(nothing.sum().detach()) == 0
    assert not torch.autograd.grad(nothing.sum(), weight)[0].any()


@pytest.mark.parametrize("frozen", ["states", "weight"])
def test_what_is_frozen_has_no_gradient(frozen):
    states, weight, labels = inputs()
    {"states": states, "weight": weight}[frozen].requires_grad_(False)
    token_logprobs(states, weight, labels).sum().backward()
    assert (states.grad is None, weight.grad is None) == (frozen == "states", frozen == "weight")


def test_autocast_multiplies_in_bfloat16_and_sums_in_float32():
    states, weight, labels = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = token_logprobs(states, weight, labels)
    assert found.dtype == torch.float32
    low = (states.bfloat16() @ weight.bfloat16().T).float().log_softmax(1)
    expected = low.gather(1, labels.clamp(min=0)[:, None])[:, 0].where(labels != IGNORE, 0)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert states.grad.dtype == weight.grad.dtype == torch.float32
    other, same, _ = inputs(torch.float32)
    direct(other, same, labels).sum().backward()
    torch.testing.assert_close(states.grad, other.grad, rtol=0.05, atol=0.05)


def test_logits_of_all_rows_never_exist_at_once():
    rows, words, chunk = 512, 2048, 16
    states = floats(rows, 8).requires_grad_()
    weight = floats(words, 8).requires_grad_()
    labels = torch.arange(rows)
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(o.numel() for o in [out] if isinstance(o, torch.Tensor))
            return out

    with Watch():
        token_logprobs(states, weight, labels, chunk=chunk).sum().backward()
    assert max(sizes) <= chunk * words
