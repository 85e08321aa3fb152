"""How much memory a run uses, along the way."""

from typing import Any

import psutil
import torch
from lightning.pytorch import Callback, Trainer

from txlab.train.history import Row
from txlab.train.memory import peak_memory


class Memory(Callback):
    """Adds `memory_mib` (in use now) and `peak_memory_mib` (most so far) to every row.

    Of the model's GPU, as its allocator counts; else of this process, as the system counts. Of
    several ranks it is rank 0's.
    """

    adds = ("memory_mib", "peak_memory_mib")

    def add_columns(self, trainer: Trainer, module: Any, row: Row) -> None:
        if module.device.type == "cuda":
            row["memory_mib"] = torch.cuda.memory_allocated(module.device) / 2**20
        else:
            row["memory_mib"] = psutil.Process().memory_info().rss / 2**20
        row["peak_memory_mib"] = max(row["memory_mib"], peak_memory(module.device))
