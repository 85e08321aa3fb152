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
    said = capsys.readouterr().out
    assert "sweep.yaml: 2 x 2 = 4 runs" in said
    assert "python -m txlab agent sweep.yaml" in said


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


def test_ranges_are_distributions_of_the_kind_of_the_key(written: Any, capsys: Any):
    sweep = written(
        "+recipe=pretrain model.attn=choice(mha,gqa) model.ffn=glob(*glu)",
        "optim.lr=tag(log,interval(1e-4,1e-2))",
        "model.dropout=interval(0,0.2) model.n_layers=interval(2,8) train.keep_last=range(1,4)",
        "data.batch_size=tag(log,interval(4,64)) method=bayes early_terminate=3 run_cap=20",
        "metric=val/perplexity goal=maximize",
    )
    assert sweep["method"] == "bayes"
    assert sweep["parameters"] == {
        "model.attn": {"values": ["mha", "gqa"]},
        "model.ffn": {"values": ["swiglu", "geglu", "reglu"]},
        "optim.lr": {"distribution": "log_uniform_values", "min": 0.0001, "max": 0.01},
        "model.dropout": {"distribution": "uniform", "min": 0.0, "max": 0.2},
        "model.n_layers": {"distribution": "int_uniform", "min": 2, "max": 8},
        "train.keep_last": {"values": [1, 2, 3]},
        "data.batch_size": {"distribution": "q_log_uniform_values", "min": 4, "max": 64, "q": 1},
    }
    assert sweep["early_terminate"] == {"type": "hyperband", "min_iter": 3}
    assert (sweep["run_cap"], sweep["metric"]["goal"]) == (20, "maximize")
    assert "sweep.yaml: 20 runs" in capsys.readouterr().out


def test_what_is_written_is_what_the_package_of_wandb_accepts(written: Any):
    package = pytest.importorskip("sweeps", reason="not in dev: it asks for numpy<2")
    sweep = written(
        "+recipe=pretrain optim.lr=tag(log,interval(1e-4,1e-2)) model.n_layers=interval(2,8)",
        "seed=1,2 method=random early_terminate=3 run_cap=20",
    )
    assert package.schema_violations_from_proposed_config(sweep) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("+recipe=pretrain optim.lr=1e-3", "no key has several values"),
        ("+recipe=pretrain optim.lr=interval(1e-4,1e-2)", r"add method=random or method=bayes"),
        ("+recipe=pretrain optim.lr=interval(1,1) method=random", "first end must be below"),
        ("+recipe=pretrain optim.lr=tag(log,interval(0,1)) method=random", "ends are above 0"),
        ("+recipe=pretrain optim.lr=tag(ln,interval(0,1)) method=random", "unknown tag ln"),
        ("+recipe=pretrain model.n_layers=interval(1.5,4) method=random", "takes whole numbers"),
        ("+recipe=pretrain model.dropout=interval(0,2) method=random", "dropout"),
        ("+recipe=pretrain seed=1,2 early_terminate=0", "early_terminate=0: expected at least 1"),
        ("+recipe=pretrain trainer=glob(*)", "stands for no option of a slot"),
        ("+recipe=pretrain seed=1,2 method=grit", "method=grit: expected one of grid"),
        ("+recipe=pretrain seed=1,2 hydra/launcher=joblib", "is for -m"),
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


def test_values_of_one_key_are_no_product(written: Any, capsys: Any):
    written("+recipe=pretrain model.attn=mha,gqa")
    assert "sweep.yaml: 2 runs\n" in capsys.readouterr().out
