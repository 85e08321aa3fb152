"""PREC-02: a step without a finite gradient leaves all that a checkpoint would hold untouched."""

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from tests.train.test_update import scaled
from tests.train.tiny_run import Poison, Run, decoder
from txlab.nn.ffn import MoE
from txlab.train import weights
from txlab.train.optim import AdamW, optim

MOVES = ("step", "tokens", "supervised", "skipped", "skips_in_row", "seconds")
"""What counts steps and time, not updates."""
OPTIMIZERS = [name for name in optim.options if name != "adamw_8bit"]  # it needs a device


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def differing(one: Any, two: Any, name: str = "") -> set[str]:
    """Names of leaves that are not the same, to the bit."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), name
        return {n for key in one for n in differing(one[key], two[key], f"{name}/{key}")}
    same = torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two
    return set() if same else {name}


class Snapshots(Callback):
    """What a run is after each step."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []

    def on_step(self, trainer: Any, module: Any) -> None:
        state = module.state()
        kept = {key: state[key] for key in ("optimizer", "training", "counters")}
        kept["counters"] = {k: v for k, v in state["counters"].items() if k not in MOVES}
        kept["weights"] = dict(module.model.state_dict())
        kept["saved"] = weights.named_tensors(module.model, module.averaging.to_save())
        kept["rates"] = {str(i): g["lr"] for i, g in enumerate(module.optimizer.param_groups)}
        self.states.append(copied(kept))


def states(folder: Any, **fields: Any) -> list[dict[str, Any]]:
    seen = Snapshots()
    Run(folder, 4, objective=Poison({3}), callbacks=(seen,), **fields).fit()
    return seen.states


def only_the_third_step_moves_nothing(seen: list[dict[str, Any]]) -> None:
    assert differing(seen[1], seen[2]) == set()
    moved = differing(seen[2], seen[3])
    assert {"/counters/updates"} < moved
    assert any(name.startswith("/weights/") for name in moved)
    assert differing(seen[0], seen[1])


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_optimizer_moves_anything(tmp_path, name, precision):
    config = optim.options[name].config(lr=0.01)
    seen = states(tmp_path, optim=config, precision=precision)
    only_the_third_step_moves_nothing(seen)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nor_under_a_scaler(tmp_path, name):
    config = optim.options[name].config(lr=0.01)
    only_the_third_step_moves_nothing(states(tmp_path, optim=config, trainer=scaled(1024.0)))


def test_an_average_and_the_biases_of_experts_stay_as_well(tmp_path):
    torch.manual_seed(0)
    model = decoder(ffn=MoE.Config(n_experts=4, top_k=1, bias_rate=0.1))
    seen = states(tmp_path, model=model, ema=0.5, optim=AdamW.Config(lr=0.01))
    only_the_third_step_moves_nothing(seen)
    moved = differing(seen[2], seen[3])
    assert any("bias" in name for name in moved)
    assert any(name.startswith("/training/") for name in moved)
    assert any(name.startswith("/saved/") for name in moved)
