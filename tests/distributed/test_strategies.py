"""One process = DDP = FSDP2 = FSDP2 with tensor parallelism: loss, norm, weights, moments."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.strategies import MOE, PARTS, case_of, figures, model_of, on_ranks, run, task
from txlab.objectives import objective
from txlab.train import checkpoint
from txlab.train.optim import optim
from txlab.train.strategy.roles import refusal

STRATEGIES = ("ddp", "fsdp", "tp")
HEADS = ["gqa", {"n_kv_heads": 2, "qk_norm": True, "gate": True, "qkv_bias": True}]
BF16 = {"train": {"precision": "bf16-mixed"}}
Case = dict[str, Any]
DATA = ("ddp", "fsdp")
"""Strategies whose ranks have rows of their own."""
ONE_STEP: Case = {"optim": ["sgd", {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}], "steps": 1}
WORKED: dict[str, Case] = {
    "two": {**ONE_STEP, "nll": [(1, 4.0), (9, 1.0)]},
    "four": {**ONE_STEP, "nll": [(1, 4.0), (9, 1.0), (3, 2.0), (5, 0.5)]},
}
"""A micro-batch for each of two ranks, then two for each: (targets, NLL of each)."""


def closely(folder: Path, name: str, like: str, *, close: float = 1e-6) -> None:
    """The run `name` has the figures of the run `like`, and files of the same tensors."""
    (rows, tensors), (wanted, others) = figures(folder / name), figures(folder / like)
    assert len(rows) == len(wanted)
    for mine, theirs in zip(rows, wanted, strict=True):
        assert mine == pytest.approx(theirs, rel=20 * close, abs=close), name
    assert tensors.keys() == others.keys()
    for key, tensor in tensors.items():
        torch.testing.assert_close(tensor, others[key], rtol=0, atol=close, msg=f"{name}: {key}")


def compared(folder: Path, cases: dict[str, Case], *, world: int = 2, **close: float) -> None:
    """Each case under every strategy that it allows, on `world` ranks, against one process."""
    tasks = []
    for name, case in cases.items():
        run(folder / name, case, "one")
        for strategy in case.get("strategies", STRATEGIES):
            tasks.append(task(case, strategy, f"{name}-{strategy}"))
    on_ranks(folder, tasks, world)
    for one in tasks:
        like = one["name"].rpartition("-")[0]
        bound = 3e-3 if one["case"].get("train") == BF16["train"] else 1e-6
        closely(folder, one["name"], like, **{"close": bound, **close})


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of everything, in one start of two ranks."""
    folder = tmp_path_factory.mktemp("few")
    run(folder / "plain", {"attn": HEADS, "train": {"save_every": 2}}, "one")
    run(folder / "moe", {"ffn": MOE}, "one")
    run(folder / "dpo", {"objective": "dpo", "adapter": "lora", "tied": False}, "one")
    plain, half = {"attn": HEADS}, str(folder / "plain/checkpoints/step-000002")
    on_ranks(
        folder,
        [
            task({**plain, "train": {"save_every": 2}}, "fsdp", "plain-fsdp"),
            task(plain, "tp", "plain-tp"),
            task({"ffn": MOE}, "fsdp", "moe-fsdp"),
            task({"objective": "dpo", "adapter": "lora", "tied": False}, "tp", "dpo-tp"),
            task(plain, "tp", "plain-one-to-tp", half),
            *(task(case, kind, f"{name}-{kind}") for name, case in WORKED.items() for kind in DATA),
        ],
    )
    run(folder / "plain-to-one", plain, "one", str(folder / "plain-fsdp/checkpoints/step-000002"))
    return folder


@pytest.mark.parametrize("name", ["plain-fsdp", "plain-tp", "moe-fsdp", "dpo-tp"])
def test_two_ranks_equal_one_process(few: Path, name: str):
    """GA-02, GA-06 (c), TIE-01: tied weights have the gradients of both uses, and count once."""
    closely(few, name, name.partition("-")[0])


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize(("name", "mean"), [("two", 13 / 10), ("four", 21.5 / 18)])
def test_worked_numbers_on_two_ranks(few: Path, name: str, mean: float, kind: str):
    """GA-02: the mean over all targets of both ranks; GA-06 (c): clipped once, on the true norm."""
    rows, tensors = figures(few / f"{name}-{kind}")
    assert [(row["train/loss"], row["grad_norm"]) for row in rows] == [pytest.approx((mean, mean))]
    assert float(tensors["weight"]) == pytest.approx(1 - 0.1 * 1.0, abs=1e-6)


@pytest.mark.parametrize("name", ["plain-one-to-tp", "plain-to-one"])
def test_a_checkpoint_goes_on_under_another_strategy(few: Path, name: str):
    """Saved at step 2 by one process or FSDP2, and resumed: step 3 and the weights are the same."""
    rows, tensors = figures(few / name)
    wanted, others = figures(few / "plain")
    assert rows == [pytest.approx(wanted[-1], rel=1e-6)]
    for key, tensor in tensors.items():
        torch.testing.assert_close(tensor, others[key], rtol=0, atol=1e-6)


def test_what_a_checkpoint_holds_does_not_depend_on_the_strategy(few: Path):
    """CKPT-06; a generator for each rank that has rows of its own, not for each process."""
    kinds = {name: checkpoint.find(few / name) for name in ("plain", "plain-fsdp", "plain-tp")}
    names = {name: set(found.weights()) for name, found in kinds.items()}
    assert names["plain"] == names["plain-fsdp"] == names["plain-tp"]
    assert not any("head" in name for name in names["plain"])  # tied: once
    generators = {name: len(found.state()["random"]) for name, found in kinds.items()}
    assert generators == {"plain": 1, "plain-fsdp": 2, "plain-tp": 1}


CASES: dict[str, Case] = {
    **{f"objective-{name}": {"objective": name} for name in objective.options},
    **{f"lora-{name}": {"objective": name, "adapter": "lora"} for name in objective.options},
    "untied": {"tied": False},
    "reduced-each": {"strategy": {"reduce_each": True}, "strategies": ["fsdp"]},
    "moe": {"ffn": MOE, "strategies": ["ddp", "fsdp"]},
    "moe-lora": {"ffn": MOE, "adapter": "lora", "strategies": ["ddp", "fsdp"]},
    "bf16": BF16,
    "bf16-moe": {**BF16, "ffn": MOE, "strategies": ["ddp", "fsdp"]},
    "compiled": {"compile": True},
    "compiled-lora": {"compile": True, "adapter": "lora"},
    "recomputed": {"recompute": "full"},
    "selective": {"recompute": "selective"},
    "selective-compiled-lora": {"recompute": "selective", "compile": True, "adapter": "lora"},
    "every-second": {"recompute": "2", "adapter": "lora"},
}


@pytest.mark.slow
def test_every_objective_and_setting(tmp_path: Path):
    compared(tmp_path, CASES)


@pytest.mark.slow
def test_four_ranks_in_a_square(tmp_path: Path):
    """Two rows of data, and two ranks on each."""
    names = ("untied", "bf16", "compiled", "recomputed", "objective-dpo", "lora-next_token")
    chosen = {name: CASES[name] for name in names} | {"heads": {"attn": HEADS}}
    compared(tmp_path, chosen, world=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in optim.options if name != "adamw_8bit"])
def test_every_optimizer(tmp_path: Path, name: str):
    """Close, not equal: muon turns rounding errors into directions."""
    case = {"optim": [name, {"eps": 1e-3} if name == "adamw" else {}], "attn": HEADS}
    compared(tmp_path, {"plain": case}, close=1e-3 if name == "muon" else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("slot", PARTS)
def test_every_option_is_sharded(tmp_path: Path, slot: str):
    """FSDP2 takes every option there is; tensor parallelism those it does not refuse."""
    cases = {}
    for name in PARTS[slot].options:
        case = case_of(slot, name)
        fits = refusal(model_of(case), 2) is None
        cases[name] = {**case, "strategies": ["fsdp", "tp"] if fits else ["fsdp"]}
    assert cases
    compared(tmp_path, cases, close=5e-6)


MASTERS: Case = {"train": {"precision": "bf16-true"}}
CROSSED: dict[str, tuple[Case, float]] = {
    "all": ({}, 1e-6),
    "lora": ({"adapter": "lora"}, 1e-6),
    "dpo-lora": ({"objective": "dpo", "adapter": "lora"}, 1e-6),
    "adafactor": ({"optim": ["adafactor", {}], "tied": False}, 1e-6),
    "free": ({"optim": ["schedule_free", {}], "adapter": "lora"}, 1e-6),
    "muon": ({"optim": ["muon", {}]}, 1e-3),  # it turns rounding errors into directions
    "average": ({"train": {"ema": 0.5}}, 1e-6),
    "masters": ({"train": {**MASTERS["train"], "ema": 0.5}}, 1e-3),
    "moe": ({"ffn": MOE}, 1e-6),
}
"""What a checkpoint may hold, and how close a run that goes on from it comes to the whole one."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", CROSSED)
def test_a_checkpoint_goes_from_any_strategy_to_any_other(tmp_path: Path, kind: str):
    """CKPT-06: every pair of strategies, each time from compiled to not compiled or back."""
    case, close = CROSSED[kind]
    there = ("one", *STRATEGIES) if kind != "moe" else ("one", *DATA)
    saving = {**case, "train": {**case.get("train", {}), "save_every": 2}}
    run(tmp_path / "whole", case, "one")
    first, then = [], []
    for strategy, compiled in itertools.product(there, (False, True)):
        name = f"{strategy}-{compiled}"
        if strategy == "one":
            run(tmp_path / name, {**saving, "compile": compiled}, "one")
        else:
            first.append(task({**saving, "compile": compiled}, strategy, name))
        half = str(tmp_path / name / "checkpoints/step-000002")
        other = {**case, "compile": not compiled}
        then += [task(other, s, f"{name}-to-{s}", half) for s in there]
    on_ranks(tmp_path, [*first, *(one for one in then if one["strategy"] != "one")])
    for one in then:
        if one["strategy"] == "one":
            run(tmp_path / one["name"], one["case"], "one", one["resume"])
    (last,), wanted = figures(tmp_path / "whole")[0][-1:], figures(tmp_path / "whole")[1]
    for one in then:
        (row,), tensors = figures(tmp_path / one["name"])
        assert row == pytest.approx(last, rel=20 * close, abs=close), one["name"]
        assert tensors.keys() == wanted.keys(), one["name"]
        for key, tensor in tensors.items():
            torch.testing.assert_close(tensor, wanted[key], rtol=0, atol=close, msg=one["name"])


EXACT: dict[str, tuple[str, Case]] = {
    "masters": ("fsdp", MASTERS),
    "masters-cut": ("tp", MASTERS),
    "masters-cut-lora": ("tp", {**MASTERS, "adapter": "lora"}),
    "free": ("fsdp", {**MASTERS, "optim": ["schedule_free", {}]}),
    "factored": ("fsdp", {"optim": ["adafactor", {}], "tied": False}),
    "factored-cut": ("tp", {"optim": ["adafactor", {}], "tied": False}),
    "factored-experts": ("fsdp", {"optim": ["adafactor", {}], "ffn": MOE}),
}


@pytest.mark.slow
def test_resumed_is_unbroken_to_the_bit(tmp_path: Path):
    """On the same ranks: what sharded moments are, and their type, is what it would have been."""
    tasks = []
    for name, (strategy, case) in EXACT.items():
        saving = {**case, "train": {**case.get("train", {}), "save_every": 2}, "steps": 4}
        half = str(tmp_path / name / "checkpoints/step-000002")
        tasks.append(task(saving, strategy, name))
        tasks.append(task(saving, strategy, f"{name}-resumed", half))
    on_ranks(tmp_path, tasks)
    for name in EXACT:
        (rows, tensors), (wanted, others) = (
            figures(tmp_path / n) for n in (f"{name}-resumed", name)
        )
        assert rows == wanted[2:], name
        assert tensors.keys() == others.keys()
        for key, tensor in tensors.items():
            torch.testing.assert_close(tensor, others[key], rtol=0, atol=0, msg=f"{name}: {key}")
