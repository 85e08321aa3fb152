"""The wheel carries its YAML and works from outside of the tree."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel as an installer would lay it out."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_it_holds_all_yaml_the_licence_and_the_script(unpacked: Path):
    for name in ("conf", "recipes"):
        packed = {f.relative_to(unpacked / "txlab/_data") for f in unpacked.rglob("*.yaml")}
        assert {f.relative_to(ROOT) for f in (ROOT / name).rglob("*.yaml")} <= packed
    assert (unpacked / "txlab/py.typed").exists()
    (info,) = unpacked.glob("txlab-*.dist-info")
    assert "txlab = txlab.__main__:main" in (info / "entry_points.txt").read_text()
    assert "Apache License" in (info / "licenses/LICENSE").read_text()
    assert not (unpacked / "tests").exists()


def test_it_trains_from_outside_of_the_tree(unpacked: Path, tmp_path: Path):
    words = ["+recipe=pretrain", "debug=fast", "train.steps=1", "train.sample=null"]
    done = subprocess.run(
        [sys.executable, "-m", "txlab", *words, "run_dir=run"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(unpacked), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/summary.json").exists()


def test_every_machine_path_is_its_own():
    """No file of the repository names a folder of the machine that it was written on."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no git here")
    texts = (".py", ".yaml", ".toml", ".md", ".txt", "Makefile", "run")
    for name in tracked.stdout.split():
        if name.endswith(texts) and (ROOT / name).exists() and name != "tests/test_wheel.py":
            said = (ROOT / name).read_text(encoding="utf-8")
            assert str(ROOT) not in said, name
            assert "/home/" not in said, name
