"""Loaders: the batches of a step for training, every row once for validation.

Iterate them as they are, or through a torch DataLoader with `batch_size=None` (any number of
workers: the same order).
"""

from collections.abc import Iterator

from torch.utils.data import IterableDataset, get_worker_info

from txlab.core.errors import RequestError
from txlab.data.batch import Batch
from txlab.data.grouping import Grouped, shared
from txlab.data.order import Order, Shuffled
from txlab.data.rows import Rows, unsupervised

Part = tuple[list[int], list[int], int]
"""A micro-batch: its rows, their epochs, and how many of them count; the others only fill it up."""


class Steps(IterableDataset[list[Batch]]):
    """For each step from `start` to before `stop` (None: without end) this rank's micro-batches.

    A pure function of (seed, step, rank, world): the ranks' shares are consecutive parts of the
    step's rows, so that together they are the same rows for any `world`.
    """

    def __init__(
        self, rows: Rows, *, start: int = 0, stop: int | None = None, rank: int = 0, world: int = 1
    ) -> None:
        self.rows, self.start, self.stop = rows, start, stop
        self.rank, self.world = rank, world

    def parts(self, step: int) -> list[Part]:
        """This rank's micro-batches of a step, as rows."""
        raise NotImplementedError

    def indices(self, step: int) -> list[list[int]]:
        """Rows of each of this rank's micro-batches of a step."""
        return [rows[:there] for rows, _, there in self.parts(step)]

    def at(self, step: int) -> list[Batch]:
        """This rank's micro-batches of a step."""
        found = []
        for rows, epochs, there in self.parts(step):
            batch = self.rows.drawn(rows, epochs)
            whole = there == len(rows)
            found.append(batch if whole else unsupervised(batch, there * self.rows.lines))
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


class StepBatches(Steps):
    """Steps of `batch_size` rows, shared out evenly."""

    def __init__(
        self,
        rows: Rows,
        *,
        batch_size: int,
        micro_batch_size: int | None = None,
        seed: int,
        order: Order | None = None,
        start: int = 0,
        stop: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        super().__init__(rows, start=start, stop=stop, rank=rank, world=world)
        self.batch_size, self.seed = batch_size, seed
        self.micro_batch_size = micro_size(batch_size, micro_batch_size, world)
        self._order = order or Shuffled(len(rows), batch_size, seed)
        share = batch_size // world
        self._share = slice(rank * share, (rank + 1) * share)

    def parts(self, step: int) -> list[Part]:
        rows, epochs = (found[self._share] for found in self._order.step(step))
        size = self.micro_batch_size
        return [(rows[i : i + size], epochs[i : i + size], size) for i in range(0, len(rows), size)]


class TokenBatches(Steps):
    """Steps of rows of like length, as many as the tokens of a step allow.

    Each rank has as many micro-batches; where a step has no row for one, its last row is repeated
    there without labels, so it counts nothing.
    """

    def __init__(
        self,
        rows: Rows,
        order: Grouped,
        *,
        micro_tokens: int | None = None,
        start: int = 0,
        stop: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        super().__init__(rows, start=start, stop=stop, rank=rank, world=world)
        self._order, self._micro_tokens = order, micro_tokens

    def parts(self, step: int) -> list[Part]:
        rows, epochs = self._order.step(step)
        size = len(rows)
        if self._micro_tokens is not None:
            size = max(1, self._micro_tokens // self._order.width(step))
        return [
            (rows[begin:end], epochs[begin:end], end - begin)
            if end > begin
            else (rows[-1:], epochs[-1:], 0)
            for begin, end in shared(len(rows), self.rank, self.world, size)
        ]


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
