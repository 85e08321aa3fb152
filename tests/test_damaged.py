"""`resume=auto` with damaged checkpoints: it goes back to a whole one and says so, or refuses."""

import pytest

from tests.test_resume import assert_same, go, rows, text
from txlab.core.errors import RequestError

__all__ = ["text"]


def flip(file):
    """One bit of a file, in its middle."""
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def test_resume_goes_back_over_damaged_checkpoints_and_says_so(tmp_path, text, capsys):
    words = ("train.steps=6", "train.save_every=2", "train.keep_last=3")
    go(tmp_path / "whole", text, *words)
    go(tmp_path / "run", text, *words)
    folder = tmp_path / "run" / "checkpoints"
    flip(folder / "step-000006" / "weights.safetensors")
    (folder / "step-000004" / "tokenizer.json").unlink()
    capsys.readouterr()
    go(tmp_path / "run", text, *words, "train.keep_last=1", "resume=auto")
    lines = [line for line in capsys.readouterr().out.splitlines() if "Going back" in line]
    assert "step-000006/weights.safetensors cannot be read (its bits are not those" in lines[0]
    assert lines[0].endswith("Going back to step-000004.")
    assert "step-000004 has no tokenizer.json" in lines[1]
    assert lines[1].endswith("Going back to step-000002.")
    assert_same(tmp_path / "whole", tmp_path / "run", 6)
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")
    names = {path.name for path in folder.iterdir()}
    assert names == {"step-000006", "step-000006-damaged", "step-000004-damaged"}


def test_resume_never_starts_anew_over_damaged_checkpoints(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=2")
    flip(tmp_path / "run" / "checkpoints" / "step-000002" / "state.pt")
    for resume in ("auto", tmp_path / "run"):
        with pytest.raises(RequestError, match=r"step-000002/state\.pt cannot be read"):
            go(tmp_path / "run", text, "train.steps=4", f"resume={resume}")
