"""Callbacks by which the ranks of a run write down what they saw, each into a file of its own."""

import json
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback


class Witness(Callback):
    """Writes lines to `folder`/rank-N.jsonl."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    @classmethod
    def words(cls, folder: Path) -> list[str]:
        """Overrides for a run that is watched by this class; the folder is made."""
        folder.mkdir(exist_ok=True)
        entry = {"_target_": f"{cls.__module__}.{cls.__name__}", "folder": folder}
        return [f"+callbacks.witness.{key}={value}" for key, value in entry.items()]

    def write(self, trainer: Any, entry: dict[str, Any]) -> None:
        with (self.folder / f"rank-{trainer.global_rank}.jsonl").open("a") as stream:
            stream.write(json.dumps(entry) + "\n")
