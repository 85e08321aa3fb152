"""The fixture `run`: a tiny run in a folder of its own."""

from pathlib import Path
from typing import Any

import pytest

from tests.train.tiny_run import Run


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """`run(steps, **fields)` builds and fits a tiny run in a folder of its own."""
    count = iter(range(1000))

    def start(steps: int = 4, *, folder: Path | None = None, **fields: Any) -> Run:
        return Run(folder or tmp_path / f"run{next(count)}", steps, **fields).fit()

    return start
