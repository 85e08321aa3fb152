"""The local agent: each arm once, in its folder; what was cut short goes on first."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from txlab.commands import agent as verb
from txlab.commands.agent import Agent, main
from txlab.core import agents
from txlab.core.errors import RequestError
from txlab.core.hydra import arms, compose

SWEEP = {
    "method": "grid",
    "metric": {"name": "val/loss", "goal": "minimize"},
    "parameters": {"optim.lr": {"values": [0.1, 0.2, 0.3]}, "model.n_heads": {"value": 4}},
    "command": ["${env}", "python", "-m", "txlab", "debug=fast", "logger=wandb"],
}
SWEEP["command"].append("${args_no_hyphens}")  # pyright: ignore[reportAttributeAccessIssue]


def next_of_grid(sweep: Any, trials: Any, seed: int) -> dict[str, Any] | None:
    """The package's walk over a grid, in three lines."""
    seen = [trial.values["optim.lr"] for trial in trials]
    left = [lr for lr in sweep["parameters"]["optim.lr"]["values"] if lr not in seen]
    return {"optim.lr": left[0], "model.n_heads": 4} if left else None


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(agents, "propose", next_of_grid)
    monkeypatch.setattr(agents, "read", lambda file: yaml.safe_load(file.read_text()))
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    return tmp_path / "sweep.yaml"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines of the arms; the one with a rate of 0.2 fails the first time."""
    lines: list[list[str]] = []

    def start(self: Agent, line: list[str], folder: Path) -> tuple[int, Any]:
        lines.append(line)
        again = sum(f"run_dir={folder}" in one for one in lines) > 1
        if "optim.lr=0.2" in line and not again:
            return 1, "disk full"
        return 0, {"val/loss": float(line[6].partition("=")[2])}

    monkeypatch.setattr(Agent, "_started", start)
    return lines


def test_each_arm_runs_once_and_again_where_it_failed(
    file: Path, started: list[list[str]], capsys: Any
):
    assert main([str(file), "out=s"]) == 1
    assert "best: run 0, val/loss 0.1 (optim.lr=0.1)" in (said := capsys.readouterr().out)
    assert "run 1 failed: disk full" in said
    folder = file.parent / "s"
    assert started[0] == [
        *("/usr/bin/env", "python", "-m", "txlab", "debug=fast", "logger=wandb"),
        *("optim.lr=0.1", "model.n_heads=4", f"run_dir={folder}/0", "resume=auto"),
        "++logger.wandb.group=s",
        "++logger.wandb.name='0 optim.lr=0.1 model.n_heads=4'",
    ]
    assert [line[6] for line in started] == ["optim.lr=0.1", "optim.lr=0.2", "optim.lr=0.3"]
    # Given again: the failed one alone, in its folder.
    assert main([str(file), "out=s"]) == 0
    assert started[3][6:9] == ["optim.lr=0.2", "model.n_heads=4", f"run_dir={folder}/1"]
    assert len(started) == 4
    # The list has grown: the new one alone.
    longer = {**SWEEP["parameters"], "optim.lr": {"values": [0.4, 0.1, 0.2, 0.3]}}  # pyright: ignore
    file.write_text(yaml.safe_dump(SWEEP | {"parameters": longer}))
    assert main([str(file), "out=s"]) == 0
    assert [line[6:9:2] for line in started[4:]] == [["optim.lr=0.4", f"run_dir={folder}/3"]]
    outcome = json.loads((folder / "3" / arms.OUTCOME).read_text())
    assert outcome["values"] == {"optim.lr": 0.4, "model.n_heads": 4}


def test_count_bounds_the_arms_of_an_agent_and_run_cap_those_of_the_sweep(
    file: Path, started: list[list[str]]
):
    main([str(file), "out=s", "count=1"])
    assert len(started) == 1
    file.write_text(yaml.safe_dump(SWEEP | {"run_cap": 2}))
    main([str(file), "out=s"])
    assert len(started) == 2


def test_an_arm_that_another_agent_has_is_left_to_it(file: Path, started: list[list[str]]):
    main([str(file), "out=s", "count=1"])
    there = file.parent / "s" / "0"
    outcome = json.loads((there / arms.OUTCOME).read_text())
    (there / arms.OUTCOME).write_text(json.dumps(outcome | {"status": None}))
    with arms.held(there):
        main([str(file), "out=s"])
    assert [line[6] for line in started] == ["optim.lr=0.1", "optim.lr=0.2", "optim.lr=0.3"]


def test_an_arm_that_was_done_without_an_agent_is_kept(
    file: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
):
    """By -m into the same folder: known by its config, though no agent has written its values."""
    asked: list[Any] = []

    def next_once(sweep: Any, trials: Any, seed: int) -> dict[str, Any] | None:
        asked.append(trials)
        assert len(asked) < 9, "proposed for ever"
        return next_of_grid(sweep, trials, seed)

    monkeypatch.setattr(agents, "propose", next_once)
    words = ["debug=fast", "optim.lr=0.2", "model.n_heads=4"]
    key = arms.identity(compose(words))
    folder = arms.claimed(file.parent / "s", key, 0, words)
    arms.record(folder, key, words, 0, {"val/loss": 0.5})
    assert main([str(file), "out=s"]) == 0
    assert [line[6] for line in started] == ["optim.lr=0.1", "optim.lr=0.3"]


def test_a_wrong_value_fails_its_arm_alone(file: Path, started: list[list[str]], capsys: Any):
    """WB-03: an unknown key, or a value of another kind, is refused before a process starts."""
    wrong = SWEEP | {"command": [*SWEEP["command"], "model.attn.heads=4"]}  # pyright: ignore
    file.write_text(yaml.safe_dump(wrong))
    assert main([str(file), "out=s"]) == 2
    assert started == []
    assert "unknown key model.attn.heads" in capsys.readouterr().out


def test_five_failures_in_a_row_end_it(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(Agent, "_started", lambda self, line, folder: (1, "no"))
    many = {**SWEEP["parameters"], "optim.lr": {"values": [n / 10 for n in range(1, 10)]}}  # pyright: ignore
    file.write_text(yaml.safe_dump(SWEEP | {"parameters": many}))
    assert main([str(file), "out=s"]) == 1
    assert len(list((file.parent / "s").glob("*/outcome.json"))) == verb.FLAPPING
    assert "5 arms in a row failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "takes one sweep file"),
        (["nowhere.yaml"], "no such file"),
        (["sweep.yaml", "cont=3"], "Did you mean count"),
        (["random.yaml"], r"no end of its own: give count=N"),
    ],
)
def test_bad_requests(file: Path, words: list[str], message: str):
    (file.parent / "random.yaml").write_text(yaml.safe_dump(SWEEP | {"method": "random"}))
    with pytest.raises(RequestError, match=message):
        main(words)
    assert not (file.parent / "s").exists()


@pytest.mark.slow
def test_an_arm_is_a_process_of_its_own(file: Path):
    """The real thing, with arms that train: exit status, error and figures come back."""
    described = SWEEP | {
        "parameters": {"model.n_heads": {"values": [4, 5]}},
        "command": [
            *("${env}", "python", "-m", "txlab", "debug=fast", "train.sample=null"),
            *("train.steps=2", "trainer=cpu", "${args_no_hyphens}"),
        ],
    }
    one = Agent(described, file.parent / "s", 0)
    assert one._arm({"model.n_heads": 4}) == 0
    assert one._arm({"model.n_heads": 5}) == 2
    assert one._arm({"model.n_heads": 4}) is None
    (_, done), (_, failed) = arms.found(file.parent / "s")
    assert done["result"]["val/loss"] > 0
    assert "model.dim=32 is not a multiple of model.n_heads=5" in failed["result"]
