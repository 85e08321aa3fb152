"""Failures in one line, each with its exit status."""

import pytest

from txlab.core.errors import RequestError, RunError, report


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RequestError("out of memory\nis a word here"), 2, "error: out of memory is a word here"),
        (RunError("a"), 1, "error: a"),
        (OSError(28, "No space left on device", "a/b.csv"), 1, "error: a/b.csv: No space left"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "error: out of memory"),
        (MemoryError(), 1, "error: out of memory"),
        (KeyError("x"), 1, "KeyError: 'x' (TXLAB_DEBUG=1 shows where)"),
    ],
)
def test_one_line_and_its_status(error, status, said, capsys):
    assert report(error) == status
    out, line = capsys.readouterr()
    assert line.startswith(f"txlab: {said}")
    assert (line.count("\n"), out) == (1, "")


def test_a_full_disk_is_said_without_a_type(capsys):
    """Some writes fail when the file is closed, and no longer know its name."""
    assert report(OSError(28, "No space left on device")) == 1
    said = "txlab: error: a file of the run: No space left on device: make room; a run goes on with"
    assert capsys.readouterr().err.startswith(said)
