"""A package from outside: the option of CONTRIBUTING.md, installed by pip, used, and taken away."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "txlab-mine"
version = "0.3"
[project.entry-points."txlab.plugins"]
mine = "txlab_mine"
[project.entry-points."txlab.recipes"]
mine = "txlab_mine_recipes"
[tool.hatch.build.targets.wheel]
include = ["*.py", "txlab_mine_recipes/*"]
"""
RECIPE = "# A recipe from outside.\ndefaults:\n  - override /model.attn: mine\nmodel:\n  dim: 32\n"
# Several command lines in one process, since each start costs seconds.
DRIVER = """
import json, os, sys
from txlab.__main__ import main
for words in json.loads(sys.argv[1]):
    line = words.pop(0) if words[0].startswith("COMP_LINE=") else ""
    os.environ["COMP_LINE"] = line.removeprefix("COMP_LINE=")
    sys.argv = ["txlab", *words]
    print("$", *words, flush=True)
    try:
        status = main()
    except SystemExit as stop:
        status = stop.code or 0
    print("->", status, flush=True)
"""


def run(lines: list[list[str]], cwd: Path, path: list[Path]) -> list[str]:
    """What each command line printed, ending with its exit status."""
    env = {k: v for k, v in os.environ.items() if k != "TXLAB_PLUGINS"}
    env |= {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(lines)],
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
    )
    said = re.split(r"^\$ .*\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(said) == len(lines), done.stdout
    return said


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    assert len([line for line in code[1].splitlines() if line.strip()]) <= 25
    (source / "txlab_mine.py").write_text(code[1], encoding="utf-8")
    (source / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (source / "txlab_mine_recipes").mkdir()
    (source / "txlab_mine_recipes" / "__init__.py").write_text("")
    (source / "txlab_mine_recipes" / "outside.yaml").write_text(RECIPE, encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    return target


def test_an_installed_option_is_one_like_any_other(installed: Path, tmp_path: Path):
    trained = ["debug=fast", "model.attn=mine", "model.attn.gate_bias=2", f"run_dir={tmp_path}/run"]
    asked = [f"ckpt={tmp_path}/run", "prompt=It's 5, C#", "max_new_tokens=4", "temperature=0"]
    said = run(
        [
            ["list", "model.attn"],
            ["show", "model.attn=mine"],
            ["--help"],
            ["COMP_LINE=txlab model.attn=mi", "-sc", "query=bash"],
            ["show", "config", "+recipe=outside"],
            trained,
            ["generate", *asked],
            ["check", "model.attn=mine"],
        ],
        tmp_path,
        [installed],
    )
    listed, shown, helped, completed, recipe, train, generated, checked = said
    assert "mine Multi-head attention with a gate on its output" in " ".join(listed.split())
    assert "[txlab-mine 0.3]" in listed
    assert "from:   txlab-mine 0.3" in shown
    assert "model.attn.gate_bias=1.0  (float)\n      Bias of the gate at the start" in shown
    assert re.search(r"model\.attn: .*\bmine\b", helped)
    assert "model.attn=mine" in completed
    assert "dim: 32" in recipe
    assert "name: mine" in recipe
    assert [text.splitlines()[-1] for text in said] == ["-> 0"] * len(said), "".join(said)
    assert (tmp_path / "run/checkpoints/step-000002/COMPLETE").exists()
    assert "step 2/2" in train
    assert "It's 5, C#" in generated
    assert "0 failed" in checked
    # Taken away, the checkpoint says what is missing; and the name is unknown.
    gone = run([["generate", *asked], ["show", "model.attn=mine"]], tmp_path, [])
    assert "needs model.attn=mine of txlab-mine 0.3, which is not installed here" in gone[0]
    assert gone[0].splitlines()[-1] == "-> 2"
    assert "unknown option 'mine' of model.attn" in gone[1]


def test_plugins_can_be_switched_off_and_named(installed: Path, tmp_path: Path):
    code = "from txlab.core.hydra.registry import ready; from txlab.nn.attention import attention; "
    code += "ready(); print('mine' in attention.options)"

    def has(setting: str) -> str:
        env = os.environ | {
            "PYTHONPATH": f"{installed}{os.pathsep}{ROOT}",
            "TXLAB_PLUGINS": setting,
        }
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    assert has("off") == "False"
    assert has("mine") == "True"
    assert "TXLAB_PLUGINS=other names other, which is not installed; installed: mine" in has(
        "other"
    )


def test_a_module_can_be_named_without_installing(installed: Path, tmp_path: Path):
    (tmp_path / "here.py").write_text((installed / "txlab_mine.py").read_text(encoding="utf-8"))
    said = run(
        [
            ["list", "model.attn", "plugins=here"],
            ["show", "config", "plugins=[here]", "model.attn=mine"],
            ["show", "config", "plugins=[nowhere]"],
        ],
        tmp_path,
        [tmp_path],
    )
    assert "mine" in said[0]
    assert "name: mine" in said[1]
    assert "plugins=[nowhere] cannot be imported: ModuleNotFoundError" in said[2]
