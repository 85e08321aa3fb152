"""Mixtures of experts against dense sums, with counts known by hand."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.context import Context
from txlab.nn.ffn import FFN, MoE, SwiGLU, ffn
from txlab.nn.ffn.dispatch import dispatch
from txlab.nn.ffn.router import Scoring
from txlab.nn.mask import Mask
from txlab.objectives import Loss
from txlab.testing import tiny
from txlab.testing.probes import FFNProbe

DIMS = Dims(dim=16, n_heads=2, head_dim=8, n_layers=1, context=8, vocab_size=10)


def moe(*, dims: Dims = DIMS, **fields: Any) -> Any:
    with tiny.seeded(0):
        built = FFNProbe(MoE(MoE.Config(**fields), dims), dims)
    tiny.shake(built)
    return built


def run(built: Any, x: Tensor, valid: Tensor | None = None) -> Any:
    mask = Mask(x.shape[1], x.shape[1], valid=valid)
    positions = torch.arange(x.shape[1])[None]
    return built.part(x, Context(mask, positions, built.position, positions, built.backend))


def dense(layer: Any, x: Tensor) -> Tensor:
    """Every expert on every token, weighed by what the router says: the definition."""
    config = layer.config
    logits = x @ layer.router.weight.T
    scores = logits.sigmoid() if config.scoring is Scoring.sigmoid else logits.softmax(-1)
    ids = scores.topk(config.top_k).indices
    weights = scores.gather(-1, ids)
    if config.norm_top_k or (config.norm_top_k is None and config.top_k > 1):
        weights = weights / weights.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    for e in range(config.n_experts):
        one = ffn.build(ffn.option(config.expert).config(bias=config.bias, hidden=24), DIMS)
        one = one.to(x.dtype)
        stacked = {k: p[e] for k, p in layer.experts.named_parameters()}
        weight = (weights * (ids == e)).sum(-1, keepdim=True)
        y = y + weight * torch.func.functional_call(one, stacked, (x,))
    return config.scale * y + (0 if layer.shared is None else layer.shared(x))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"top_k": 1},
        {"top_k": 3, "norm_top_k": False},
        {"expert": "mlp", "bias": True},
        {"expert": "geglu", "n_shared": 2, "scale": 2.5},
        {"scoring": Scoring.sigmoid},
        {"scoring": Scoring.softmax_after},
        {"scoring": Scoring.sigmoid, "top_k": 1, "bias": True},
    ],
)
def test_equals_the_dense_sum_in_values_and_gradients(fields: dict[str, Any]) -> None:
    built = moe(n_experts=5, hidden=24, **fields).double()
    found: list[list[Tensor]] = []
    for compute in (lambda x: run(built, x)[0], lambda x: dense(built.part, x)):
        x = tiny.floats(2, 9, 16, dtype=torch.float64).requires_grad_()
        y = compute(x)
        inputs = [x, *built.parameters()]
        found.append([y, *torch.autograd.grad((y * y.cos()).sum(), inputs)])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected)


def test_kernel_and_loop_agree() -> None:
    """float32 takes torch's grouped kernel, float64 the loop."""
    built = moe(n_experts=3, hidden=32)
    x = tiny.floats(2, 9, 16)
    y = run(built, x)[0]
    torch.testing.assert_close(run(built.double(), x.double())[0].float(), y, atol=1e-5, rtol=1e-5)


def test_gradients_of_a_tokens_rows_add_up_in_its_own_precision() -> None:
    """1 and 2^-9 are bfloat16, their sum is not."""
    way = dispatch(torch.tensor([[0, 1], [1, 0]]), 2)
    x = tiny.floats(2, 4).requires_grad_()
    rows = way.spread(x, torch.bfloat16)
    assert torch.equal(rows, x.bfloat16()[way.order % 2])
    sizes = torch.tensor([1.0, 2.0**-9]).repeat_interleave(2)  # of first choices, of second ones
    rows.backward(sizes[way.order, None].expand(4, 4).bfloat16())
    assert torch.equal(x.grad, torch.full((2, 4), 1 + 2.0**-9))


def test_no_rows_at_all_and_experts_without_rows() -> None:
    built = moe(n_experts=8, top_k=1, hidden=32)
    x = tiny.floats(1, 1, 16).requires_grad_()
    y, _ = run(built, x, torch.zeros(1, 1, dtype=torch.bool))
    assert not y.any()
    y.sum().backward()
    assert not x.grad.any()
    run(built, x)[0].sum().backward()
    used = built.part.experts.down.weight.grad.flatten(1).any(1)
    assert used.sum() == 1


def test_balance_by_hand() -> None:
    """MOE-01, E=4, k=1: 4 collapsed, 1 uniform, and the mean, not the union, over micro-batches."""
    built = moe(n_experts=4, top_k=1, balance_loss=1.0)
    x = tiny.floats(2, 8, 16).abs()

    def loss_with(expert: int | None) -> Tensor:
        with torch.no_grad():
            built.part.router.weight.zero_()
            if expert is not None:
                built.part.router.weight[expert] = 100.0
        return run(built, x)[1].losses["balance"]

    assert loss_with(None).item() == pytest.approx(1.0)
    assert loss_with(0).item() == pytest.approx(4.0)
    both = [loss_with(0), loss_with(3)]
    assert (sum(both) / 2).item() == pytest.approx(4.0)  # the union would be 2


def test_the_routers_gradient_follows_the_coefficient_and_no_repetition() -> None:
    """MOE-01: twice the coefficient, twice the gradient; four times the micro-batch, the same."""
    x = tiny.floats(2, 8, 16)

    def gradient(balance: float, repeated: int) -> Tensor:
        built = moe(n_experts=4, top_k=1, balance_loss=balance)
        count = torch.tensor(7)
        total = torch.zeros(())
        for _ in range(repeated):
            losses = Loss(torch.zeros(()), count).plus(run(built, x)[1])
            total = total + losses.sum
        (total / (repeated * count)).backward()
        return built.part.router.weight.grad

    once = gradient(0.01, 1)
    assert float(once.abs().max()) > 0
    torch.testing.assert_close(gradient(0.02, 1), 2 * once)
    torch.testing.assert_close(gradient(0.01, 4), once)


def test_balance_and_z_loss_against_their_formulas() -> None:
    built = moe(n_experts=4, top_k=2, balance_loss=0.5, z_loss=0.25)
    x = tiny.floats(2, 9, 16)
    losses = run(built, x)[1].losses
    logits = x.flatten(0, 1) @ built.part.router.weight.T
    shares = logits.softmax(-1)
    f = torch.bincount(shares.topk(2).indices.flatten(), minlength=4) / (2 * 18)
    torch.testing.assert_close(losses["balance"], 0.5 * 4 * (f * shares.mean(0)).sum())
    expected = 0.25 * logits.exp().sum(-1).log().square().mean()
    torch.testing.assert_close(losses["router_z"], expected)


def test_low_precision_chooses_the_experts_of_float32() -> None:
    """MOE-03."""
    dims = dataclasses.replace(DIMS, dim=64)
    built = moe(dims=dims, n_experts=64, top_k=2, hidden=8).bfloat16()
    x = tiny.floats(1, 4096, 64).bfloat16()
    router = built.part.router
    for low in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            chosen = router(x[0]).experts
        logits = x[0].float() @ router.weight.float().T
        exact = logits.softmax(-1).topk(2).indices
        assert torch.equal(chosen.sort().values, exact.sort().values)
        rounded = logits.softmax(-1).bfloat16().topk(2).indices
        assert not torch.equal(rounded.sort().values, exact.sort().values)


def test_capacity_drops_late_and_second_choices_first() -> None:
    built = moe(n_experts=2, top_k=1, hidden=8, capacity_factor=0.5, n_shared=1).train()
    with torch.no_grad():
        built.part.router.weight[0] = 1.0
        built.part.router.weight[1] = -1.0
    x = tiny.floats(1, 8, 16).abs()
    y, aux = run(built, x)
    shared = built.part.shared(x)
    kept = (y - shared).abs().amax(-1)[0] > 1e-6
    assert (
        kept.tolist() == [True] * 2 + [False] * 6
    )  # 0.5 * 8 / 2 for each, and one expert gets all
    assert aux.figures["dropped"][0].item() == pytest.approx(0.75)
    assert (run(built.eval(), x)[0] - shared).abs().amax(-1).min() > 1e-6
    second = moe(n_experts=2, top_k=2, hidden=8, capacity_factor=0.5).train()
    way = second.part.capacity(x[0], None)
    assert way == 4  # each expert is chosen by all 8: its first choices stay


def test_the_bias_moves_choices_and_not_weights() -> None:
    built = moe(n_experts=4, top_k=1, bias_rate=0.5, scoring=Scoring.sigmoid, hidden=8)
    router, x = built.part.router, tiny.floats(1, 20, 16)
    load = run(built, x)[1].loads[0]
    built.part.rebalance(load)
    assert torch.equal(router.bias, 0.5 * (5 - load).sign())
    router.bias.copy_(torch.tensor([0.0, 9.0, 0.0, 0.0]))
    routing = router(x[0])
    assert (routing.experts == 1).all()
    torch.testing.assert_close(routing.weights[:, 0], routing.logits[:, 1].sigmoid())
    built.bfloat16()
    assert router.bias.dtype == torch.float32
    assert router.bias[1] == 9
    assert not moe(bias_rate=0.0).part.balances
    assert "part.router.bias" in moe(bias_rate=0.0).state_dict()
    assert "part.router.bias" not in moe().state_dict()


def test_jitter_moves_the_router_in_training_only() -> None:
    built = moe(jitter=0.5)
    x = tiny.floats(1, 64, 16)
    logits = [built.train(training).part.router(x[0]).logits for training in (True, True, False)]
    assert not torch.equal(logits[0], logits[1])
    torch.testing.assert_close(logits[2], x[0] @ built.part.router.weight.T)
    relative = (built.part.router.train()(torch.ones(1, 16)).logits - logits[0][:1]).abs().max()
    assert relative > 0


class Doubles(FFN):
    """Twice its input, by a weight of its own."""

    def __init__(self, config: FFN.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.gain = torch.nn.Parameter(torch.full((dims.dim,), 2.0))

    def forward(self, x: Tensor, ctx: Any) -> Tensor:
        return self.gain * x


def test_experts_of_a_strangers_option() -> None:
    from txlab.testing import lent

    with lent(Doubles, "doubles"):
        built = moe(expert="doubles", n_experts=3)
        with torch.no_grad():
            for expert in built.part.experts:
                expert.gain.fill_(2.0)
        x = tiny.floats(2, 5, 16)
        valid = tiny.padded((5, 3), left=False)
        torch.testing.assert_close(run(built, x, valid)[0][valid], 2 * x[valid])
        with pytest.raises(RequestError, match=r"n_shared needs model\.ffn\.hidden"):
            moe(expert="doubles", n_shared=1)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"n_experts": 1}, r"^model\.ffn\.n_experts=1 of option 'moe': expected 2 or more"),
        ({"top_k": 9}, "top_k=9"),
        ({"top_k": 0}, "top_k=0"),
        ({"top_k": 1, "norm_top_k": True}, "norm_top_k=True .* false with top_k=1"),
        ({"top_k": 1, "scoring": Scoring.softmax_after}, "scoring=softmax_after"),
        ({"scoring": Scoring.softmax_after, "norm_top_k": False}, "norm_top_k=False"),
        ({"n_groups": 3}, "n_groups=3"),
        ({"n_groups": 4, "top_groups": 5}, "top_groups=5"),
        ({"n_groups": 8, "top_groups": 1}, "top_k=2"),
        ({"capacity_factor": 0.0}, "capacity_factor=0.0"),
        ({"jitter": 1.0}, "jitter=1.0"),
        ({"expert": "moe"}, "expert=moe: experts cannot be mixtures"),
        ({"expert": "swiglo"}, "Did you mean swiglu"),
    ],
)
def test_refuses(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        MoE(MoE.Config(**fields), DIMS)


def test_shared_experts_are_one_of_their_total_width() -> None:
    shared = moe(n_shared=3, hidden=24).part.shared
    assert isinstance(shared, SwiGLU)
    assert shared.hidden == 72
