"""What a strategy cannot do is one line that names the key, before a run has written anything."""

import itertools
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn

from tests.distributed.strategies import PARTS, case_of, model_of
from tests.test_docs import DOCS, rows
from txlab.core.errors import RequestError
from txlab.objectives import objective
from txlab.train.config import Train
from txlab.train.optim import optim
from txlab.train.strategy.checks import MESH, check_precision, check_strategy
from txlab.train.strategy.mesh import Mesh
from txlab.train.strategy.roles import refusal

PAGE = (DOCS / "distributed.md").read_text(encoding="utf-8")
OPTIONS = [(slot, name) for slot, kind in PARTS.items() for name in kind.options]


@pytest.mark.parametrize(("slot", "name"), OPTIONS)
def test_an_option_is_cut_over_ranks_or_refused_by_name_as_the_page_says(slot: str, name: str):
    told = rows(PAGE, f"model.{slot}")
    assert set(told) == set(PARTS[slot].options)
    reason = refusal(model_of(case_of(slot, name)), 2)
    assert (reason is None) == (told[name][1] == "yes")
    assert reason is None or f"model.{slot}={name}" in reason
    if slot == "attn" and reason is not None:
        cut = {other for other, (_, by_role) in told.items() if by_role == "yes"}
        assert set(re.findall(r"\w+", reason.partition(": use ")[2])) == cut | {"or"}


@pytest.mark.parametrize(
    ("case", "n", "message"),
    [
        ({}, 3, "model.n_heads=4 does not divide by it"),
        ({"attn": ["gqa", {"n_kv_heads": 2}]}, 4, r"model.attn.n_kv_heads=2 does not divide"),
        ({"attn": ["mha", {"sink_logit": True}]}, 2, "model.attn.sink_logit"),
        ({"ffn": ["mlp", {"hidden": 9}]}, 2, "model.ffn.hidden=9 does not divide"),
        ({"attn": "mha"}, 4, "model.vocab_size=18 does not divide by it: give .*vocab_size=20"),
    ],
)
def test_sizes_that_do_not_divide(case: dict[str, Any], n: int, message: str):
    found = refusal(model_of(case), n)
    with pytest.raises(RequestError, match=message):
        check_strategy(trainer(n, world=n), module(case))
    assert found is not None


def test_only_low_rank_adapters_are_cut():
    model = model_of({"adapter": "lora"})
    assert refusal(model, 2) is None
    layer: Any = model.layers[0]
    layer.attn.q.lora_magnitude_vector["default"] = nn.Linear(1, 1)  # what makes a LoRA a DoRA
    assert "adapter=lora" in str(refusal(model, 2))


@pytest.mark.parametrize(
    ("precision", "refused"),
    list(itertools.product(("64-true", "16-mixed", "bf16-true"), (True, False))),
)
def test_precisions_of_a_mesh(precision: str, refused: bool):
    given = {"strategy": {"_target_": MESH} if refused else "ddp"}
    if refused and precision != "bf16-true":
        with pytest.raises(RequestError, match=f"train.precision={precision}.*trainer=ddp"):
            check_precision(given, Train(precision=precision))
    else:
        check_precision(given, Train(precision=precision))


@pytest.mark.parametrize(
    ("made", "world", "message"),
    [
        ({"tensor_parallel": 2}, 3, "tensor_parallel=2 does not divide the 3 devices"),
        ({"cpu_offload": True}, 2, "cpu_offload=true: this run is on the CPU"),
    ],
)
def test_settings_of_a_mesh(made: dict[str, Any], world: int, message: str):
    with pytest.raises(RequestError, match=message):
        check_strategy(trainer(world=world, **made), module({}))


def test_no_ranks_at_all_are_asked_for():
    with pytest.raises(RequestError, match="tensor_parallel=0: expected 1 or more"):
        Mesh(0)


def test_strategies_of_others_are_refused():
    other = SimpleNamespace(strategy=FSDPStrategy(), world_size=2)
    with pytest.raises(RequestError, match=r"FSDPStrategy is none that txlab .* trainer=fsdp"):
        check_strategy(other, module({}))


def test_an_optimizer_of_8_bits_is_not_sharded():
    pytest.importorskip("bitsandbytes")
    with pytest.raises(RequestError, match="optim=adamw_8bit"):
        check_strategy(trainer(world=2), module({}, "adamw_8bit"))


def trainer(tensor_parallel: int = 1, *, world: int, **more: Any) -> Any:
    strategy = Mesh(tensor_parallel, **more)
    strategy.parallel_devices = [torch.device("cpu")] * world
    return SimpleNamespace(strategy=strategy, world_size=world)


def module(case: dict[str, Any], optimizer: str = "adamw") -> Any:
    model = model_of(case)
    goal = objective.build(objective.options["next_token"].config())
    made = optim.build(optim.options[optimizer].config()).make(model)
    return SimpleNamespace(model=model, objective=goal, optimizer=made)
