"""Arms of a sweep keep to their folders, whatever order, process or spelling they come in."""

import subprocess
import sys
from pathlib import Path

import pytest

from txlab.core.errors import RequestError
from txlab.core.hydra import arms, compose, composed, prepare

WORDS = ["+recipe=pretrain", "optim.lr=1e-3", "model.attn=mha"]
KEY = arms.identity(compose(WORDS))


@pytest.mark.parametrize(
    "word",
    [
        *("run_dir=elsewhere", "resume=auto", "logger=wandb", "optim.lr=0.001", "model/attn=mha"),
        *("sweep.metric=val/perplexity", "sweep.goal=maximize"),
    ],
)
def test_what_no_result_depends_on_makes_no_other_arm(word: str):
    kept = [w for w in WORDS if w.partition("=")[0] != word.partition("=")[0].replace("/", ".")]
    assert arms.identity(compose([*kept, word])) == KEY


@pytest.mark.parametrize(
    "word", ["seed=1", "optim.lr=2e-3", "model.attn=gqa", "train.steps=9", "trainer=ddp"]
)
def test_what_a_result_depends_on_makes_another_arm(word: str):
    kept = [w for w in WORDS if w.partition("=")[0] != word.partition("=")[0]]
    assert arms.identity(compose([*kept, word])) != KEY


def test_relative_paths_are_those_of_the_launch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """HYD-03: stored absolute, so that the same command elsewhere is another arm."""
    monkeypatch.chdir(tmp_path)
    there = compose(["data.path=text"])
    assert there.data.path == str(tmp_path / "text")
    assert arms.identity(there) == arms.identity(compose([f"data.path={tmp_path}/text"]))


def test_a_refused_config_has_an_identity_of_its_own():
    keys = [
        arms.identity_of_refused(composed(prepare([*WORDS, *words])))
        for words in (["model.n_heads=5"], ["model.n_heads=5", "resume=auto"], ["model.n_heads=7"])
    ]
    assert keys[0] == keys[1] != keys[2]


def test_an_arm_is_found_again_and_a_new_one_gets_a_number_that_is_free(tmp_path: Path):
    first = arms.claimed(tmp_path, "a", 0, [])
    second = arms.claimed(tmp_path, "b", 1, [])
    assert [first.name, second.name] == ["0", "1"]
    # The list has changed: another arm comes first.
    assert arms.claimed(tmp_path, "c", 0, []).name == "2"
    assert arms.claimed(tmp_path, "a", 1, []) == first
    assert arms.claimed(tmp_path, "b", 2, []) == second
    assert [outcome["config"] for _, outcome in arms.found(tmp_path)] == ["a", "b", "c"]


def test_a_folder_named_by_the_user_holds_one_arm(tmp_path: Path):
    folder = tmp_path / "lr"
    assert arms.claimed_as_named(folder, "a", ["seed=1"]) == folder
    assert arms.claimed_as_named(folder, "a", ["seed=1"]) == folder
    with pytest.raises(RequestError, match=r"another run of this sweep \(seed=1\)"):
        arms.claimed_as_named(folder, "b", ["seed=2"])
    assert [found for found, _ in arms.found(tmp_path)] == [folder]


def test_an_arm_is_held_by_one_process_until_it_is_gone(tmp_path: Path):
    folder = arms.claimed(tmp_path, "a", 0, [])
    code = (
        "import sys, pathlib; from txlab.core.hydra import arms\n"
        "with arms.held(pathlib.Path(sys.argv[1])) as mine:\n"
        "    print(mine, flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == b"True\n"
    with arms.held(folder) as mine:
        assert not mine
    assert arms.ended(tmp_path)[0][1]["status"] is None
    other.kill()
    other.wait()
    other.stdout.close()
    other.stdin.close()
    with arms.held(folder) as mine:
        assert mine
    ((_, outcome),) = arms.ended(tmp_path)
    assert (outcome["status"], outcome["result"]) == (1, arms.UNENDED)


def test_a_damaged_outcome_is_named(tmp_path: Path):
    folder = arms.claimed(tmp_path, "a", 0, [])
    (folder / arms.OUTCOME).write_text("{")
    with pytest.raises(RequestError, match=r"outcome\.json is damaged: remove"):
        arms.found(tmp_path)
