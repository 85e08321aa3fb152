"""Hands the trainer this rank's batches: exactly the steps that are left, then the end."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, IterableDataset

from txlab.data.batch import Batch
from txlab.data.source import Data
from txlab.train.strategy.peers import peers_of


class DataModule(LightningDataModule):
    """Loaders over prepared `data`, made on the rank that reads them, from step `start` on."""

    def __init__(
        self, data: Data, *, start: int, total_steps: int, one_batch: bool = False
    ) -> None:
        super().__init__()
        self.data = data
        self.total_steps = total_steps
        self.one_batch = one_batch
        self.start = start

    @property
    def validates(self) -> bool:
        return len(self.data.val) > 0

    def train_dataloader(self) -> DataLoader[Any]:
        rank, world = self._place()
        steps = self.data.step_batches(self.start, self.total_steps, rank=rank, world=world)
        return self._loader(Repeated(steps.at(0), len(steps)) if self.one_batch else steps)

    def val_dataloader(self) -> Any:
        if not self.validates:
            return []
        rank, world = self._place()
        loaders = self.data.val_loaders(rank=rank, world=world)
        return [self._loader(batches) for batches in loaders.values()]

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        # The generic walk through nested containers costs more than the copy it avoids.
        return batch if device.type == "cpu" else super().transfer_batch_to_device(batch, device, 0)

    def _place(self) -> tuple[int, int]:
        peers = peers_of(self.trainer)
        return peers.rank, peers.size

    def _loader(self, batches: IterableDataset[Any]) -> DataLoader[Any]:
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        # A generator of its own: by default each loader draws from the one that dropout draws from.
        return DataLoader(batches, batch_size=None, pin_memory=on_gpu, generator=torch.Generator())


class Repeated(IterableDataset[list[Batch]]):
    """One step's micro-batches, again and again."""

    def __init__(self, micro_batches: list[Batch], times: int) -> None:
        self.micro_batches = micro_batches
        self.times = times

    def __len__(self) -> int:
        return self.times

    def __iter__(self) -> Iterator[list[Batch]]:
        return iter([self.micro_batches] * self.times)
