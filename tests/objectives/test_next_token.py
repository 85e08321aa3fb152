"""Next-token prediction: sums and counts, whatever the split."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from txlab.core.errors import RequestError
from txlab.data.batch import IGNORE
from txlab.nn.auxiliary import Aux
from txlab.objectives import NextToken
from txlab.train.history import Sums, held_out_pairs, held_out_row


class Fake(nn.Module):
    """Embedding and head, and a record of what it was called with."""

    def __init__(self, vocab=11, dim=5, aux=None):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.aux = Aux(aux or {})
        self.called = {}

    def forward(self, tokens, **called):
        self.called = called
        return SimpleNamespace(states=self.embed(tokens), aux=self.aux)


def known(nll: float) -> Fake:
    """A model that gives token 0 the probability exp(-nll) after any token."""
    model = Fake(vocab=2, dim=1)
    with torch.no_grad():
        model.embed.weight.fill_(1)
        model.head.weight.copy_(torch.tensor([[0.0], [math.log(math.expm1(nll))]]))
    return model


def batch(rows=2, t=6, vocab=11):
    torch.manual_seed(1)
    tokens = torch.randint(0, vocab, (rows, t))
    labels = torch.randint(0, vocab, (rows, t))
    labels[0, -2:] = IGNORE
    return {"tokens": tokens, "labels": labels}


def grads(model, losses):
    """Gradients of all sums over all counts."""
    total, count = sum(x.sum for x in losses), sum(x.count for x in losses)
    return torch.autograd.grad(total / count, list(model.parameters()))


def test_sum_count_and_metrics():
    objective, model, data = NextToken(NextToken.Config()), Fake(), batch()
    loss = objective(model, data)
    logits = model.head(model.embed(data["tokens"]))
    expected = nn.functional.cross_entropy(
        logits.flatten(0, 1), data["labels"].flatten(), reduction="sum"
    )
    torch.testing.assert_close(loss.sum, expected)
    assert loss.count.item() == objective.count(data).item() == 10
    torch.testing.assert_close(loss.metrics["nll"][0], expected.detach())
    assert objective.additive
    assert objective.needs == ("tokens", "labels")


def test_micro_batches_add_up_to_the_whole():
    """1 target with NLL 4 and 9 with NLL 1 are 13 over 10, not the mean of means 2.5 (GA-01)."""
    objective = NextToken(NextToken.Config())
    one = {"tokens": torch.zeros(1, 1).long(), "labels": torch.zeros(1, 1).long()}
    nine = {"tokens": torch.zeros(1, 9).long(), "labels": torch.zeros(1, 9).long()}
    a, b = objective(known(4.0), one), objective(known(1.0), nine)
    assert (a.sum + b.sum).item() == pytest.approx(13, rel=1e-5)
    assert ((a.sum + b.sum) / (a.count + b.count)).item() == pytest.approx(1.3, rel=1e-5)


def test_gradients_do_not_depend_on_the_split():
    objective, model, data = (
        NextToken(NextToken.Config(z_loss=0.1, label_smoothing=0.1)),
        Fake(),
        batch(),
    )
    whole = grads(model, [objective(model, data)])
    rows = [{key: value[i : i + 1] for key, value in data.items()} for i in range(2)]
    for a, b in zip(whole, grads(model, [objective(model, row) for row in rows]), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_perplexity_is_of_the_summed_nll():
    """100 tokens of mean NLL 2 and 10 of mean NLL 4: exp(240 / 110) (MET-01)."""
    objective, sums = NextToken(NextToken.Config(label_smoothing=0.1)), Sums()
    for nll, n in ((2.0, 100), (4.0, 10)):
        zeros = torch.zeros(1, n).long()
        loss = objective(known(nll), {"tokens": zeros, "labels": zeros})
        sums.add(held_out_pairs(loss, zeros, None))
    row = held_out_row(sums)
    assert row["val/perplexity"] == pytest.approx(8.8624, abs=1e-4)


def test_fields_change_the_loss_and_not_the_nll():
    model, data = Fake(), batch()
    plain = NextToken(NextToken.Config())(model, data)
    for fields in ({"z_loss": 0.1}, {"label_smoothing": 0.1}):
        other = NextToken(NextToken.Config(**fields))(model, data)
        assert abs(other.sum.item() - plain.sum.item()) > 1e-3
        torch.testing.assert_close(other.metrics["nll"], plain.metrics["nll"])


def test_auxiliary_losses_count_once_a_token():
    balance = torch.tensor(0.5, requires_grad=True)
    model, data = Fake(aux={"balance": balance}), batch()
    loss = NextToken(NextToken.Config())(model, data)
    plain = loss.metrics["nll"][0]
    torch.testing.assert_close(loss.sum.detach(), plain + 0.5 * 10)
    assert [x.item() for x in loss.metrics["balance"]] == [5, 10]
    assert not loss.metrics["balance"][0].requires_grad
    (grad,) = torch.autograd.grad(loss.sum / loss.count, [balance])
    assert grad.item() == pytest.approx(1)


def test_the_model_gets_what_the_batch_has():
    model, data = Fake(), batch()
    positions = torch.arange(6).expand(2, 6)
    NextToken(NextToken.Config())(model, {**data, "positions": positions})
    assert model.called["positions"] is positions
    assert model.called["documents"] is None
    assert model.called["valid"] is None


@pytest.mark.parametrize(
    "fields", [{"z_loss": -1}, {"label_smoothing": 1}, {"label_smoothing": -0.1}]
)
def test_bad_fields_are_refused(fields):
    with pytest.raises(RequestError, match=next(iter(fields))):
        NextToken.Config(**fields)
