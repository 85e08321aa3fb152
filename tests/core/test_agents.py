"""Our agent's commands are those of `wandb agent`; its proposals those of W&B's package."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from txlab.core import agents
from txlab.core.agents import Trial, command, overrides, propose, read
from txlab.core.errors import RequestError

TEMPLATE = ["${env}", "python", "-m", "txlab", "+recipe=pretrain", "${args_no_hyphens}"]
VALUES = {"model.attn": "gqa", "optim.lr": 1e-05, "seed": 3, "data.dedup": True, "model.dim": None}
SWEEP = {
    "method": "grid",
    "metric": {"name": "val/loss", "goal": "minimize"},
    "parameters": {"model.attn": {"values": ["mha", "gqa"]}, "seed": {"values": [1, 2]}},
    "command": TEMPLATE,
}


def as_wandb_builds_it(template: list[str], monkeypatch: pytest.MonkeyPatch, there: Path) -> Any:
    """What W&B's agent starts, from its own code up to the start of the process."""
    agent_module = pytest.importorskip("wandb.wandb_agent")
    started: list[list[str]] = []

    class Process:
        def __init__(self, command: list[str], **kwargs: Any) -> None:
            started.append(command)

    monkeypatch.chdir(there)
    monkeypatch.setattr(agent_module, "AgentProcess", Process)
    for name in ("WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH"):
        monkeypatch.setenv(name, "")  # so that what the agent sets is taken back
    agent = agent_module.Agent.__new__(agent_module.Agent)
    agent.__dict__ |= {
        "_sweep_command": list(template),
        "_in_jupyter": False,
        "_function": None,
        "_forward_signals": False,
        "_run_processes": {},
    }
    arguments = {key: {"value": value} for key, value in VALUES.items()}
    agent._command_run({"run_id": "r1", "program": "txlab", "args": arguments})
    return started[0]


@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE,
        ["${env}", "${interpreter}", "-m", "${program}", "${args}"],
        ["x-${envvar:SOME_PLACE}/a", "${envvar:NOT_THERE}", "txlab", "${args_append_hydra}"],
        ["txlab", "${args_override_hydra}"],
    ],
)
def test_the_command_is_that_of_wandb(
    template: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("SOME_PLACE", "here")
    theirs = as_wandb_builds_it(template, monkeypatch, tmp_path)
    assert command(template, VALUES) == theirs
    assert any("optim.lr=1e-05" in word for word in theirs)


def test_what_txlab_is_given():
    line = command(TEMPLATE, {"optim.lr": 0.1})
    assert overrides(line) == ["+recipe=pretrain", "optim.lr=0.1"]


def test_an_unknown_macro_is_refused():
    with pytest.raises(RequestError, match=r"\$\{args_json\} is unknown"):
        command(["txlab", "${args_json}"], {})


class Package:
    """Stands in for `sweeps`, which needs an older numpy by its own word."""

    def schema_violations_from_proposed_config(self, sweep: Any) -> list[str]:
        known = ("grid", "random", "bayes")
        return [] if sweep["method"] in known else [f"{sweep['method']!r} is not one of {known}"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": None}, "names no parameters"),
        ({"method": "gird"}, "'gird' is not one of"),
        ({"parameters": {"optim": {"parameters": {"lr": {"value": 1}}}}}, r"optim is nested.*LEAF"),
        ({"command": ["python", "train.py", "${args}"]}, "must run `python -m txlab"),
        ({"command": None}, "must run `python -m txlab"),
        ({"command": [*TEMPLATE, "${args_json_file}"]}, "args_json_file"),
    ],
)
def test_a_file_that_cannot_be_run_here(
    change: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agents, "_package", Package)
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(SWEEP))
    assert read(file) == SWEEP
    file.write_text(yaml.safe_dump(SWEEP | change))
    with pytest.raises(RequestError, match=message):
        read(file)
    file.write_text("a: [")
    with pytest.raises(RequestError, match="is no YAML"):
        read(file)


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(agents.importlib, "import_module", absent)
    with pytest.raises(RequestError, match=r"needs W&B's package sweeps: pip install"):
        propose(SWEEP, [], 0)


def test_a_grid_is_walked_once():
    pytest.importorskip("sweeps", reason="not in dev: it asks for numpy<2")
    trials: list[Trial] = []
    while (values := propose(SWEEP, trials, 0)) is not None:
        trials.append(Trial(values, "failed" if len(trials) == 1 else "finished", [1.0]))
    found = [tuple(trial.values.items()) for trial in trials]
    assert sorted(found) == [
        (("model.attn", attn), ("seed", seed)) for attn in ("gqa", "mha") for seed in (1, 2)
    ]


@pytest.mark.parametrize("method", ["random", "bayes"])
def test_a_search_follows_from_its_seed_and_what_it_has_seen(method: str):
    pytest.importorskip("sweeps", reason="not in dev: it asks for numpy<2")
    rate = {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-2}
    sweep = SWEEP | {"method": method, "parameters": {"optim.lr": rate}}
    trials: list[Trial] = []
    for _ in range(4):
        values = propose(sweep, trials, 0)
        assert values == propose(sweep, trials, 0)
        assert values is not None
        assert type(values["optim.lr"]) is float
        assert 1e-4 <= values["optim.lr"] <= 1e-2
        trials.append(Trial(values, "finished", [values["optim.lr"]]))
    assert len({trial.values["optim.lr"] for trial in trials}) == 4
    assert propose(sweep, [], 1) != trials[0].values


def test_hyperband_ends_the_weak():
    pytest.importorskip("sweeps", reason="not in dev: it asks for numpy<2")
    sweep = SWEEP | {"early_terminate": {"type": "hyperband", "min_iter": 2}}
    strong = [Trial({"seed": n}, "finished", [1.0, 0.5]) for n in range(4)]
    assert agents.is_to_stop(sweep, [*strong, Trial({"seed": 9}, "running", [9.0, 9.0])], 4)
    assert not agents.is_to_stop(sweep, [*strong, Trial({"seed": 9}, "running", [9.0])], 4)
    assert not agents.is_to_stop(sweep, [*strong, Trial({"seed": 9}, "running", [0.1, 0.1])], 4)
    assert not agents.is_to_stop(SWEEP, [*strong, Trial({"seed": 9}, "running", [9.0, 9.0])], 4)
