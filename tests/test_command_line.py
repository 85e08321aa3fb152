"""The command line as a user meets it: exit statuses, one line, sweeps, completion."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_plugin import run

ROOT = Path(__file__).parents[1]


def txlab(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "txlab", *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | env,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_bad_requests_say_one_line_and_leave_nothing(tmp_path: Path):
    done = txlab("+recipe=pretrain", "model.atn=gqa", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "txlab: error: unknown key model.atn. Did you mean model.attn or model.pattern?\n"
    )
    (tmp_path / "file").write_text("")
    lines = [
        ["lst"],
        ["+recipe=pretrain", "model.dim=30", "model.n_heads=4"],
        ["+recipe=pretrain", "data.path=nowhere.txt"],
        ["+recipe=pretrain", "run_dir=file"],
        ["+recipe=pretrain", "-m", "run_dir=file/below", "seed=1,2"],
        ["+recipe=pretrain", "--cfg", "job", "seed=x"],
        ["-m", "model.attn=mha,gqx"],
        ["--cfg", "job", "-m", "seed=1,2"],
        ["--mltirun", "seed=1,2"],
    ]
    for said in run(lines, tmp_path, []):
        message, status = said.splitlines()
        assert message.startswith("txlab: error: "), said
        assert status == "-> 2", said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_the_traceback_is_there_for_who_asks(tmp_path: Path):
    done = txlab("model.atn=gqa", cwd=tmp_path, TXLAB_DEBUG="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("txlab: error: unknown key model.atn.")


def test_what_prints_does_not_train(tmp_path: Path):
    lines = [
        [],
        ["--help"],
        ["+recipe=pretrain", "model.attn=mqa", "--cfg", "job"],
        ["--info", "defaults"],
        ["list", "--help"],
        ["COMP_LINE=txlab model.attn=", "-sc", "query=bash"],
        ["COMP_LINE=txlab model.attn=gqa model.attn.n", "-sc", "query=bash"],
        ["-sc", "install=bash"],
    ]
    said = run([line or ["list"] for line in lines], tmp_path, [])
    assert [text.splitlines()[-1] for text in said] == ["-> 0"] * len(lines)
    _, helped, job, _, verb, options, keys, install = said
    listed = re.search(r"^model\.attn: (.*)$", helped, re.MULTILINE)
    assert listed is not None
    assert {"gqa", "mha", "mqa"} <= set(listed[1].split(", "))
    assert "name: mqa" in job
    assert verb.startswith("Show what exists")
    assert {"model.attn=mha", "model.attn=gqa", "model.attn=mqa"} <= set(options.split())
    assert "model.attn.n_kv_heads=" in keys.split()
    assert "complete -o nospace" in install
    assert list(tmp_path.iterdir()) == []


def test_alone_it_explains_itself_in_a_screenful(tmp_path: Path):
    done = txlab(cwd=tmp_path)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) <= 50
    for word in ("+recipe=pretrain model.attn=gqa", "model.attn ", "generate", "Recipes", "-m "):
        assert word in done.stdout


def test_a_sweep_ends_with_a_table_and_its_worst_status(tmp_path: Path):
    words = ["debug=fast", "train.steps=1", "train.sample=null"]
    sweep = ["-m", "model.attn=mha,gqa,mqa", "seed=1,2"]
    said = run(
        [
            ["+recipe=pretrain", *words, *sweep],
            [*words, "-m", "model.n_heads=4,5", f"run_dir={tmp_path}/second"],
        ],
        tmp_path,
        [],
    )
    assert said[0].splitlines()[-1] == "-> 0"
    assert "6 runs" in said[0]
    folders = [path.parent for path in tmp_path.glob("runs/sweep-*/*/summary.json")]
    assert sorted(folder.name for folder in folders) == list("012345")
    assert len({json.dumps((folder / "config.yaml").read_text()) for folder in folders}) == 6
    assert said[1].splitlines()[-1] == "-> 2"
    assert "run 1 failed: model.dim=32 is not a multiple of model.n_heads=5" in said[1]
    assert (tmp_path / "second/0/checkpoints").is_dir()


@pytest.mark.slow
def test_runs_started_in_the_same_second_have_their_own_folders(tmp_path: Path):
    words = ["debug=fast", "train.steps=1", "train.sample=null"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "txlab", *words]
    runs = [subprocess.Popen(command, cwd=tmp_path, env=environment) for _ in range(4)]
    assert [process.wait(300) for process in runs] == [0] * 4
    assert len(list(tmp_path.glob("runs/*/summary.json"))) == 4


HEAVY = (
    *("torch._dynamo", "torch._inductor", "lightning", "peft", "datasets", "torchmetrics"),
    *("matplotlib", "wandb", "transformers"),
)


@pytest.mark.parametrize("words", [["--help"], ["list"], []])
def test_what_only_tells_imports_nothing_heavy(words: list[str], tmp_path: Path):
    """How long it takes beside `import torch` stands in benchmarks/RESULTS.md: noise is large."""
    code = (
        "import sys; from txlab.__main__ import main; "
        f"sys.argv = ['txlab', *{words!r}]; main(); "
        f"print('heavy:', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "heavy: []", done.stderr
