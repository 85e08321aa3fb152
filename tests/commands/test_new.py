"""`python -m txlab new`: a package that passes its contract as created, and what is refused."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import txlab.schema  # noqa: F401  (declares every slot)
from txlab.__main__ import dispatch
from txlab.commands.new import files, usual
from txlab.core.errors import RequestError
from txlab.core.slot import SLOTS
from txlab.testing import judge, subjects
from txlab.testing.harness import EVERY, Status, checks_of

ROOT = Path(__file__).parents[2]
CHECKED = [path for path in SLOTS if path != "model.norm"]  # which is checked at every run


def created(slot: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    dispatch(["new", slot, "my_own"])
    return folder / "my_own"


def check(package: Path, slot: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "txlab", "check", f"{slot}=my_own", "plugins=[txlab_my_own]"],
        cwd=package,
        env={"PYTHONPATH": f"{ROOT}", "OMP_NUM_THREADS": "1", "PATH": ""},
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_a_package_passes_its_contract_as_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = created("model.norm", tmp_path, monkeypatch)
    names = sorted(str(p.relative_to(package)) for p in package.rglob("*") if p.is_file())
    assert names == ["README.md", "pyproject.toml", "tests/test_my_own.py", "txlab_my_own.py"]
    project = tomllib.loads((package / "pyproject.toml").read_text())
    assert project["project"]["name"] == "txlab-my-own"
    assert project["project"]["entry-points"]["txlab.plugins"] == {"my_own": "txlab_my_own"}
    assert "from txlab.nn.norm import RMSNorm, norm" in (package / "txlab_my_own.py").read_text()
    assert ", 0 failed" in check(package, "model.norm")
    compile((package / "tests/test_my_own.py").read_text(), "test", "exec")


def test_a_name_that_spells_the_class_it_starts_from() -> None:
    text = files(SLOTS["optim"], "adam_w")["txlab_adam_w.py"]
    assert '@optim("adam_w")\nclass MyAdamW(AdamW):' in text


def test_what_does_nothing_itself_is_no_start() -> None:
    for slot in SLOTS.values():
        assert usual(slot).__name__ not in ("Auto", "NoAdapter")


@pytest.mark.parametrize("slot", SLOTS)
def test_every_slot_gets_an_option_that_is_loaded_and_keeps_what_all_keep(
    slot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = created(slot, tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.delitem(sys.modules, "txlab_my_own", raising=False)
    made = importlib.import_module("txlab_my_own").MyOwn
    try:
        (subject, *_) = subjects([slot], ["my_own"])
        assert subject.option.cls is made
        general = [check for check in checks_of(subject) if check.slots == (EVERY,)]
        assert {check.name for check in general} >= {"builds_from_defaults", "says_what_it_is"}
        failed = [r for r in (judge(subject, c) for c in general) if r.status is Status.failed]
        assert not failed
    finally:
        SLOTS[slot].remove("my_own")
        del sys.modules["txlab_my_own"]


@pytest.mark.slow
@pytest.mark.parametrize("slot", CHECKED)
def test_every_slots_package_passes_its_whole_contract(
    slot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ", 0 failed" in check(created(slot, tmp_path, monkeypatch), slot)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model.nrm", "mine"], "Did you mean model.norm"),
        (["model.norm", "rmsnorm"], "has an option of that name"),
        (["model.norm", "My-Norm"], "a name is a small letter"),
        (["model.norm", "class"], "a name is a small letter"),
        (["model.norm"], "new takes SLOT NAME"),
        (["model.norm", "mine", "dir=there"], "there exists"),
    ],
)
def test_refuses(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(RequestError, match=says):
        dispatch(["new", *words])
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
