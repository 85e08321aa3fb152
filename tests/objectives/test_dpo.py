"""DPO: numbers worked by hand, the first loss, the reference, what it refuses."""

import contextlib
import copy
import math

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.data.batch import IGNORE
from txlab.nn.adapter import LoRA
from txlab.nn.auxiliary import Aux
from txlab.objectives import DPO, IPO, dpo_loss, ipo_loss, preference
from txlab.testing import tiny

LN2 = math.log(2)


def lora(model, **fields):
    LoRA(LoRA.Config(**fields)).inject(model)
    return model


def bound(model, **fields):
    goal = DPO(DPO.Config(**fields))
    goal.bind(model)
    return goal


def test_worked_numbers():
    """DPO-03: chosen -2 against -3, rejected -4 against -3.5, beta 0.1: ln(1 + e^-0.15)."""
    margin = 0.1 * ((torch.tensor([-2.0]) + 3.0) - (torch.tensor([-4.0]) + 3.5))
    assert float(dpo_loss(margin)) == pytest.approx(0.620957, abs=1e-6)
    assert float(dpo_loss(torch.zeros(1))) == pytest.approx(LN2, abs=1e-7)
    smooth = 0.9 * math.log1p(math.exp(-0.15)) + 0.1 * math.log1p(math.exp(0.15))
    assert float(dpo_loss(margin, label_smoothing=0.1)) == pytest.approx(smooth, abs=1e-6)
    extreme = dpo_loss(torch.tensor([-500.0, 500.0]))
    assert extreme.tolist() == pytest.approx([500.0, 0.0])


@pytest.mark.parametrize(("average", "expected"), [("sum", 12.25), ("mean", 19.140625)])
def test_worked_numbers_of_ipo(average, expected, monkeypatch):
    """DPO-03: the same pair of lengths 2 and 4, through the objective; 25 before any update."""
    logps = {"policy": [-2.0, -4.0], "reference": [-3.0, -3.5]}

    def said(model, batch, *, mean):
        found = torch.tensor(logps[model])
        return (found / torch.tensor([2.0, 4.0]) if mean else found), Aux()

    monkeypatch.setattr(preference, "answer_logprobs", said)
    monkeypatch.setattr(preference, "evaluating", lambda model: contextlib.nullcontext())
    goal = IPO(IPO.Config(beta=0.1, average=average))
    for asked, loss in (("policy", expected), ("reference", 25.0)):
        monkeypatch.setattr(goal, "_reference_of", lambda m: contextlib.nullcontext("reference"))
        labels = torch.tensor([[1, 1, IGNORE, IGNORE], [1, 1, 1, 1]])
        found = goal(asked, {"tokens": labels, "labels": labels})
        assert float(found.sum) == pytest.approx(loss, abs=1e-5)


def test_ipo_is_the_loss_of_mean_log_probabilities():
    """The whole against its definition, from logits; the pull ends at 1 / (2 beta)."""
    model = tiny.model()
    goal = IPO(IPO.Config(beta=0.3))
    goal.bind(model)
    assert float(goal(model, tiny.paired()).sum.detach()) == pytest.approx(3 / (4 * 0.3**2))
    start = copy.deepcopy(model)
    tiny.shake(model, 5)
    batch = tiny.paired()

    def logps(network):
        logits = network.logits(network(batch["tokens"], valid=batch["valid"]).states)
        found = logits.log_softmax(-1).gather(-1, batch["labels"].clamp(min=0)[..., None])[..., 0]
        there = batch["labels"] != IGNORE
        return (found * there).sum(1) / there.sum(1)

    ratios = logps(model) - logps(start)
    expected = ((ratios[0::2] - ratios[1::2] - 1 / 0.6) ** 2).sum()
    torch.testing.assert_close(goal(model, batch).sum, expected)
    margin = torch.tensor([0.5], requires_grad=True)  # margin / beta = 1 / (2 beta)
    ipo_loss(margin, beta=0.3).sum().backward()
    assert margin.grad is not None
    assert float(margin.grad) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_first_loss_is_ln_2_with_dropout_configured(adapted, autocast):
    """DPO-01."""
    model = tiny.model(dropout=0.1)
    if adapted:
        lora(model, dropout=0.1)
    model.train()
    goal = bound(model)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = goal(model, tiny.paired())
    assert float(loss.sum.detach() / loss.count) == pytest.approx(LN2, abs=1e-6)
    for name in ("margin", "rewards/chosen", "rewards/rejected"):
        assert float(loss.metrics[name][0]) == 0
    assert int(loss.count) == 3
    assert model.training
    assert model.layers[0].training


def test_is_the_loss_of_summed_log_probabilities():
    """The whole against its definition, from logits."""
    model = tiny.model()
    goal = bound(model, beta=0.3, label_smoothing=0.2)
    start = copy.deepcopy(model)
    tiny.shake(model, 5)
    batch = tiny.paired()

    def logps(network):
        logits = network.logits(network(batch["tokens"], valid=batch["valid"]).states)
        found = logits.log_softmax(-1).gather(-1, batch["labels"].clamp(min=0)[..., None])[..., 0]
        return (found * (batch["labels"] != IGNORE)).sum(1)

    after, before = logps(model), logps(start)
    margins = 0.3 * ((after - before)[0::2] - (after - before)[1::2])
    expected = dpo_loss(margins, label_smoothing=0.2).sum()
    loss = goal(model, batch)
    torch.testing.assert_close(loss.sum, expected)
    figures = {name: float(total / count) for name, (total, count) in loss.metrics.items()}
    assert figures["margin"] == pytest.approx(float(margins.detach().mean()), rel=1e-4)
    assert figures["accuracy"] == pytest.approx(float((margins > 0).float().mean()))
    assert figures["logps/chosen"] == pytest.approx(float(after[0::2].detach().mean()), rel=1e-4)
    assert figures["rewards/rejected"] == pytest.approx(
        0.3 * float((after - before)[1::2].detach().mean()), rel=1e-4
    )


def test_the_copy_stays_as_it_was_in_eval_mode_and_untrained():
    model = tiny.model(dropout=0.1)
    goal = bound(model)
    goal.train()
    assert not any(part.training for part in goal.reference.modules())
    assert not any(p.requires_grad for p in goal.parameters())
    before = copy.deepcopy(goal.state_dict())
    tiny.shake(model, 3)
    goal(model, tiny.paired()).sum.backward()
    assert all(torch.equal(v, before[k]) for k, v in goal.state_dict().items())


def test_an_adapter_is_its_own_reference():
    """The same loss and gradients as with a frozen copy of the model under the adapter."""
    model = lora(tiny.model())
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    goal = bound(model)
    assert goal.reference is None
    other = DPO(DPO.Config())
    other.bind(tiny.model())
    one, two = goal(model, tiny.paired()), other(model, tiny.paired())
    torch.testing.assert_close(one.sum, two.sum)
    assert float(one.metrics["margin"][0]) != 0
    one.sum.backward()
    assert all((p.grad is not None) == ("lora_" in n) for n, p in model.named_parameters())


def test_a_pair_with_an_empty_side_does_not_count():
    model, batch = tiny.model(), tiny.paired()
    goal = bound(model)
    tiny.shake(model, 4)
    whole = goal(model, {k: v[2:] for k, v in batch.items()})
    batch["labels"][1] = IGNORE
    assert int(goal.count(batch)) == 2
    loss = goal(model, batch)
    torch.testing.assert_close(loss.sum, whole.sum)
    for name, (total, count) in whole.metrics.items():
        torch.testing.assert_close(loss.metrics[name][0], total)
        assert loss.metrics[name][1] == count


def test_refusals():
    model = tiny.model()
    odd = {k: v[:3] for k, v in tiny.paired().items()}
    with pytest.raises(RequestError, match="3 rows is no list of pairs"):
        bound(model)(model, odd)
    with pytest.raises(RuntimeError, match="call bind"):
        DPO(DPO.Config())(model, tiny.paired())
    for wrong in ({"beta": 0.0}, {"label_smoothing": 0.5}):
        with pytest.raises(RequestError, match=next(iter(wrong))):
            DPO.Config(**wrong)


@pytest.mark.parametrize("adapted", [False, True])
def test_the_reference_pass_makes_no_graph(adapted):
    model = tiny.model()
    if adapted:
        lora(model)
    goal, seen = bound(model), []
    network = model if adapted else goal.reference.network
    network.register_forward_hook(lambda module, args, out: seen.append(out.states.requires_grad))
    goal(model, tiny.paired())
    assert seen[0] is False
