"""The W&B sweep file: read back, run through W&B's own command builder, composed (WB-03)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from txlab.commands.sweep import main
from txlab.core.errors import RequestError
from txlab.core.hydra import compose

WORDS = "+recipe=pretrain model.attn=mha,gqa optim.lr=1e-3,3e-4 data.batch_size=4"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def write(*words: str) -> Any:
        assert main(words) == 0
        return yaml.safe_load((tmp_path / "sweep.yaml").read_text())

    return write


def test_several_values_are_parameters_and_the_rest_is_the_command(written: Any, capsys: Any):
    sweep = written(WORDS)
    assert sweep["method"] == "grid"
    assert sweep["metric"] == {"name": "val/loss", "goal": "minimize"}
    assert sweep["parameters"] == {
        "model.attn": {"values": ["mha", "gqa"]},
        "optim.lr": {"values": [0.001, 0.0003]},
    }
    command = sweep["command"]
    assert command[:4] == ["${env}", "python", "-m", "txlab"]
    assert command[-1] == "${args_no_hyphens}"
    assert {"+recipe=pretrain", "data.batch_size=4", "logger=wandb"} < set(command)
    assert "sweep.yaml: 2 x 2 = 4 runs" in capsys.readouterr().out


def test_what_the_agent_passes_composes(written: Any):
    """WB-03: leaves change, their siblings stay, and an unknown key is refused."""
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    words = WORDS.replace("+recipe=pretrain", "recipe=pretrain,sft model.init_from=base")
    sweep = written(words, "model.attn.window=16")
    args = {key: {"value": entry["values"][1]} for key, entry in sweep["parameters"].items()}
    args["recipe"] = {"value": "pretrain"}
    made = utils.create_sweep_command_args({"args": args})["args_no_hyphens"]
    assert made == ["recipe=pretrain", "model.attn=gqa", "optim.lr=0.0003"]
    words = utils.create_sweep_command(sweep["command"])[4:-1] + made
    config = compose(words)
    plain = compose(["+recipe=pretrain"])
    assert (config.model.attn.name, config.model.attn.window) == ("gqa", 16)
    assert (config.optim.lr, config.data.batch_size) == (0.0003, 4)
    assert config.optim.betas == plain.optim.betas
    assert config.model.n_heads == plain.model.n_heads
    assert config.logger["wandb"]["project"] == "txlab"
    with pytest.raises(RequestError, match=r"model\.attn\.heads"):
        compose([*words, "model.attn.heads=4"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("+recipe=pretrain optim.lr=1e-3", "no key has several values"),
        ("+recipe=pretrain model.attn=mha,gqx", "gqx"),
        ("+recipe=pretrain model.n_heads=8,7", "n_heads=7"),
        ("+recipe=pretrain optim.lr=1e-3,fast", "optim.lr"),
        ("+recipe=pretrain optim.lr=1e-3,1e-4 run_dir=here", "run_dir"),
        ("-m +recipe=pretrain optim.lr=1e-3,1e-4", "takes no flags"),
    ],
)
def test_a_wrong_request_writes_nothing(written: Any, words: str, message: str, tmp_path: Path):
    with pytest.raises(RequestError, match=message):
        written(words)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_stays(written: Any, tmp_path: Path):
    (tmp_path / "sweep.yaml").write_text("mine")
    with pytest.raises(RequestError, match=r"sweep\.yaml exists"):
        written(WORDS)
    assert (tmp_path / "sweep.yaml").read_text() == "mine"
