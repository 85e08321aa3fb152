"""How many processes a run gets, and what is refused before one of them is started."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import txlab
from txlab.core.errors import RequestError
from txlab.train.devices import check_shares, described, wanted


@pytest.mark.parametrize(
    ("trainer", "count"),
    [
        (None, 1),
        ({"devices": 2}, 2),
        ({"devices": "2", "strategy": "ddp"}, 2),
        ({"devices": [0, 1, 2]}, 3),
        ({"devices": "1,3"}, 2),
        ({"devices": [1]}, 1),
        ({"devices": "auto", "accelerator": "cpu"}, 1),
    ],
)
def test_how_many_processes(trainer: dict | None, count: int):
    assert wanted(trainer) == count


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({"devices": 2, "strategy": "ddp_spawn"}, r"use trainer\.strategy=ddp\."),
        ({"devices": 2, "num_nodes": 2}, "with torchrun"),
        ({"devices": 0}, r"trainer\.devices=0: expected a number of devices from 1"),
        ({"devices": -2}, "expected a number"),
        ({"devices": "two"}, "expected a number"),
        ({"devices": -1, "accelerator": "cpu"}, "there is none"),
        ({"devices": 9, "accelerator": "cpu"}, r"9 processes are too many for 2 cores"),
    ],
)
def test_what_cannot_be_started_is_refused(
    trainer: dict, message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(RequestError, match=message):
        wanted(trainer)


def test_a_machine_has_no_more_gpus_than_it_has(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert wanted({"devices": -1}) == wanted({"devices": "auto"}) == 2
    with pytest.raises(RequestError, match="devices=3: this machine has 2 GPUs"):
        wanted({"devices": 3})


@pytest.mark.parametrize(
    ("words", "world", "message"),
    [
        (["data.batch_size=8"], 3, "data.batch_size=8 is not divisible by 3 ranks: .* of 3"),
        (["data.batch_size=8", "trainer=fsdp_tp"], 3, "tensor_parallel=2 does not divide the 3"),
        (["data.batch_size=9", "trainer=fsdp_tp"], 4, "not divisible by 2 ranks"),
        (["data.batch_size=8", "data.micro_batch_size=4"], 4, "x data.micro_batch_size=4"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(words: list[str], world: int, message: str):
    with pytest.raises(RequestError, match=message):
        check_shares(txlab.compose(words), world)


@pytest.mark.parametrize(
    ("words", "world"),
    [
        (["data.batch_size=8"], 4),
        (["data.batch_size=9", "trainer=fsdp_tp"], 2),
        (["data.batch_tokens=4096"], 3),
    ],
)
def test_what_can_be_shared_out_is_not(words: list[str], world: int):
    check_shares(txlab.compose(words), world)


@pytest.mark.parametrize(
    ("world", "tensor_parallel", "said"),
    [
        (1, None, "1 x CPU, 32-true"),
        (2, None, "2 x CPU, ddp, 32-true"),
        (1, 1, "1 x CPU, fsdp, 32-true"),
        (4, 2, "4 x CPU, fsdp with tensor_parallel=2, 32-true"),
    ],
)
def test_a_run_says_what_it_got(world: int, tensor_parallel: int | None, said: str):
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    if tensor_parallel is not None:
        strategy.place, strategy.tensor_parallel = None, tensor_parallel
    trainer: Any = SimpleNamespace(world_size=world, strategy=strategy)
    assert described(trainer, "32-true") == said
