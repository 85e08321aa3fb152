"""code.jsonl says what a process ran, so that it can be brought back."""

import json
import subprocess

import pytest

import txlab
from txlab.train.tracking import code_state


def git(folder, *words):
    given = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *given, *words], check=True, capture_output=True)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """(a run folder, a repository in which the run is started; txlab itself lies in none)."""
    run, project = tmp_path / "run", tmp_path / "project"
    run.mkdir()
    project.mkdir()
    (project / "model.py").write_text("one\n")
    git(tmp_path, "init", "-q", "project")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    monkeypatch.chdir(project)
    monkeypatch.setattr(txlab, "__file__", str(tmp_path / "site-packages" / "txlab.py"))
    (tmp_path / "site-packages").mkdir()
    return run, project


def last(run):
    return json.loads((run / "code.jsonl").read_text().splitlines()[-1])


def test_a_clean_commit_needs_no_diff(places):
    run, project = places
    assert code_state.record(run, 0) == [run / "code.jsonl"]
    line = last(run)
    assert line["txlab"] == txlab.__version__
    assert line["packages"].keys() >= {"torch", "lightning"}
    assert line["command"]
    state = line["git"]["working_directory"]
    assert state["root"] == str(project)
    assert len(state["commit"]) == 40
    assert (state["dirty"], state["untracked"]) == (False, [])
    assert "diff" not in state


def test_what_git_has_not_stored_brings_the_state_back(places, tmp_path):
    run, project = places
    (project / "model.py").write_text("two\n")
    (project / "new.py").write_text("")
    files = code_state.record(run, 3)
    state = last(run)["git"]["working_directory"]
    assert (last(run)["step"], state["dirty"], state["untracked"]) == (3, True, ["new.py"])
    assert files == [run / "code.jsonl", run / state["diff"]]
    git(project, "worktree", "add", str(tmp_path / "back"), state["commit"])
    git(tmp_path / "back", "apply", str(run / state["diff"]))
    assert (tmp_path / "back" / "model.py").read_text() == "two\n"


def test_each_process_adds_a_line(places):
    run, _ = places
    code_state.record(run, 0)
    code_state.record(run, 5)
    lines = (run / "code.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 5]


@pytest.mark.parametrize("why", ["no repository", "no git", "git hangs"])
def test_without_a_repository_the_rest_is_said(places, monkeypatch, tmp_path, why):
    run, _ = places
    if why == "no repository":
        monkeypatch.chdir(tmp_path)
    elif why == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
        monkeypatch.setattr(code_state, "PATIENCE", 0.05)
    code_state.record(run, 0)
    assert last(run)["git"] == {}


def test_a_folder_that_git_ignores_is_in_no_repository(places, tmp_path):
    """Installed into an environment inside somebody's repository, txlab is not that commit."""
    _, project = places
    (project / ".gitignore").write_text("venv\n")
    (project / "venv").mkdir()
    (project / "venv" / "txlab.py").write_text("")
    assert code_state.repository(project / "venv") == (None, b"")
