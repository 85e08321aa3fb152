"""Folders that are to be written anew, and texts that are written whole."""

from pathlib import Path

import pytest

from txlab.core.errors import RequestError, RunError
from txlab.core.files import append, refuse_as_new, rewrite


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"out=.*file exists: name a folder"):
        refuse_as_new(tmp_path / "file", "out=")
    for place in (tmp_path / "file/x", tmp_path / "file/x/y"):
        with pytest.raises(RequestError, match="cannot be written"):
            refuse_as_new(place)
    refuse_as_new(tmp_path / "new/x")
    assert list((tmp_path / "new").iterdir()) == []


def test_texts_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "a.txt"
    append(file, "one\n")
    append(file, "two\n")
    rewrite(file, file.read_text() + "three\n")
    assert file.read_text() == "one\ntwo\nthree\n"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(RunError, match=r"a\.txt cannot be written \(No space left on device"):
            rewrite(file, "other")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *path, **how: HalfFull(*path, **how))
        with pytest.raises(RunError, match=r"make room; a run goes on with resume=auto"):
            append(file, "four\n")
    assert file.read_text() == "one\ntwo\nthree\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def full(*args, **kwargs):
    raise OSError(28, "No space left on device")


class HalfFull:
    """A file that takes the first letters, then refuses."""

    def __init__(self, path, mode, encoding):
        self.stream = open(path, mode, encoding=encoding)  # noqa: SIM115

    def __enter__(self):
        return self

    def write(self, text):
        self.stream.write(text[:2])
        self.stream.flush()
        full()

    def __exit__(self, *error):
        self.stream.close()
