"""Figures that something follows are known, or refused, before the first step."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import txlab
from tests.train.tiny_run import Run, decoder, rows_of
from txlab.core.errors import RequestError, RunError
from txlab.objectives.next_token import NextToken
from txlab.train import checkpoint
from txlab.train.callbacks.early_stopping import EarlyStopping
from txlab.train.callbacks.memory import Memory
from txlab.train.callbacks.norms import Norms
from txlab.train.figures import asked_for, refuse_unknown
from txlab.train.state import random_state


def check(name: str, *callbacks: Any, validates: bool = True) -> None:
    model, tokens = decoder(dropout=0.5), torch.ones(64)
    module = SimpleNamespace(
        model=model,
        objective=NextToken(NextToken.Config()),
        token_bytes=tokens,
        validates=validates,
    )
    batches: dict[str | None, Any] = {"web": [rows_of(0)], "code": [rows_of(1)]}
    before = random_state()
    refuse_unknown({"train.best": name}, module, callbacks, batches if validates else {})
    assert model.training
    assert torch.equal(random_state()["torch"], before["torch"])


@pytest.mark.parametrize(
    "name",
    ["val/loss", "val/perplexity", "val/bits_per_byte", "val/loss/code", "train/nll", "lr", "mfu"],
)
def test_what_a_run_has_is_known(name: str):
    check(name)


def test_what_callbacks_add_is_known_and_may_be_anything_where_they_do_not_say():
    check("memory_mib", Memory())
    check("grad_norm/layers.1", Norms())
    with pytest.raises(RequestError, match="memory_mib"):
        check("memory_mib", Norms())
    check("anything", SimpleNamespace(add_columns=None))


@pytest.mark.parametrize(
    ("name", "said"),
    [("val/lss", "Did you mean val/loss"), ("val/loss/cod", "val/loss/code"), ("nonsense", "lr")],
)
def test_what_it_will_not_have_is_refused_with_the_nearest(name: str, said: str):
    with pytest.raises(RequestError, match=rf"train\.best={name}: the run will have .*{said}"):
        check(name)


def test_without_held_out_rows_there_are_no_figures_of_them():
    check("train/loss", validates=False)
    with pytest.raises(RequestError, match=r"train\.best=val/loss: nothing is held out"):
        check("val/loss", validates=False)


def test_who_follows_what():
    config = txlab.compose(["train.keep_best=1", "train.best=a", "sweep.metric=val/c"])
    assert asked_for(config, [EarlyStopping("b"), Norms()]) == {
        "train.best": "a",
        "callbacks.early_stopping.monitor": "b",
        "sweep.metric": "val/c",
    }
    assert asked_for(txlab.compose([]), [Norms()]) == {}


def test_a_figure_that_nobody_could_know_of_ends_the_run_with_the_step_saved(tmp_path):
    run = Run(tmp_path, 9, val_every=2, callbacks=(EarlyStopping("val/never"),))
    with pytest.raises(RunError, match=r"monitor=val/never.* ends at step 2, which is saved"):
        run.fit()
    assert checkpoint.find(tmp_path).step == 2
