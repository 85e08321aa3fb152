"""Loaders: the batches of a step for training, every row once for validation.

Iterate them as they are, or through a torch DataLoader with `batch_size=None` (any number of
workers: the same order).
"""

from collections.abc import Iterator

from torch.utils.data import IterableDataset, get_worker_info

from txlab.core.errors import RequestError
from txlab.data.batch import Batch
from txlab.data.order import indices_of_step
from txlab.data.rows import Rows, unsupervised


class StepBatches(IterableDataset[list[Batch]]):
    """For each step from `start` to before `stop` (None: without end) this rank's micro-batches.

    A pure function of (seed, step, rank, world): the ranks' shares are consecutive parts of the
    step's rows, so that together they are the same rows for any `world`.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        batch_size: int,
        micro_batch_size: int | None = None,
        seed: int,
        start: int = 0,
        stop: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.rows, self.batch_size, self.seed = rows, batch_size, seed
        self.start, self.stop = start, stop
        self.micro_batch_size = micro_size(batch_size, micro_batch_size, world)
        share = batch_size // world
        self._share = slice(rank * share, (rank + 1) * share)

    def indices(self, step: int) -> list[list[int]]:
        """Rows of each of this rank's micro-batches of a step."""
        mine = indices_of_step(len(self.rows), self.batch_size, self.seed, step)[self._share]
        size = self.micro_batch_size
        return [mine[i : i + size] for i in range(0, len(mine), size)]

    def at(self, step: int) -> list[Batch]:
        """This rank's micro-batches of a step."""
        first, n, found = step * self.batch_size + self._share.start, len(self.rows), []
        for part in self.indices(step):
            found.append(self.rows.drawn(part, [(first + i) // n for i in range(len(part))]))
            first += len(part)
        return found

    def __iter__(self) -> Iterator[list[Batch]]:
        first, every = _worker()
        step = self.start + first
        while self.stop is None or step < self.stop:
            yield self.at(step)
            step += every

    def __len__(self) -> int:
        if self.stop is None:
            raise TypeError("a stream without end has no length")
        return max(0, self.stop - self.start)


class EpochBatches(IterableDataset[Batch]):
    """Every row exactly once over all ranks, in order; as many batches of one size on each rank.

    Where the rows do not suffice the last one is repeated without labels, so it counts nothing.
    """

    def __init__(self, rows: Rows, *, micro_batch_size: int, rank: int = 0, world: int = 1) -> None:
        self.rows, self.rank, self.world = rows, rank, world
        self.micro_batch_size = max(1, min(micro_batch_size, -(-len(rows) // world)))

    def __len__(self) -> int:
        return -(-len(self.rows) // (self.micro_batch_size * self.world))

    def at(self, number: int) -> Batch:
        """This rank's batch number `number`."""
        size, last = self.micro_batch_size, len(self.rows) - 1
        begin = (number * self.world + self.rank) * size
        batch = self.rows.batch([min(i, last) for i in range(begin, begin + size)])
        there = max(0, last + 1 - begin)
        return batch if there >= size else unsupervised(batch, there * self.rows.lines)

    def __iter__(self) -> Iterator[Batch]:
        first, every = _worker()
        return (self.at(number) for number in range(first, len(self), every))


def micro_size(batch_size: int, micro_batch_size: int | None, world: int) -> int:
    """Rows of a micro-batch; RequestError where a step cannot be shared out evenly."""
    size = micro_batch_size if micro_batch_size is not None else max(1, batch_size // world)
    if batch_size % (size * world):
        of_rank = "" if micro_batch_size is None else f" x data.micro_batch_size={size}"
        raise RequestError(
            f"data.batch_size={batch_size} is not divisible by {world} ranks{of_rank}: choose a "
            f"multiple of {size * world if of_rank else world}."
        )
    return size


def _worker() -> tuple[int, int]:
    """(number of this loader worker, how many there are); the loader asks them in turn."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
