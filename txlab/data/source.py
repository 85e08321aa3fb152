"""The slot of data: what the model is trained on and measured with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from txlab.core.config import Component
from txlab.core.errors import RequestError
from txlab.core.slot import Slot
from txlab.data.batch import Batch
from txlab.data.grouping import Grouped
from txlab.data.loader import EpochBatches, StepBatches, Steps, TokenBatches, micro_size
from txlab.data.memory import check_batch
from txlab.data.order import Order, Shuffled
from txlab.data.problem import Problem
from txlab.data.rows import Rows, collate
from txlab.data.tokenizer.tokenizer import Tokenizer


class Data:
    """Training and validation rows with the tokenizer that made them.

    `prepare()` does all the work and may be called by several processes at once; after it
    `tokenizer`, `train`, `val` and `facts` are there.
    """

    reads: ClassVar[str] = "documents"
    """What files hold for it: documents, chats, pairs, prompts, images, captions, or nothing; the
    contracts bring such files along."""
    supervised: ClassVar[bool] = True
    """Whether rows have labels; else the model makes the answers that it learns from."""

    keys: ClassVar[tuple[str, ...]] = ("tokens", "labels")
    """Keys that every batch has."""
    control: ClassVar[tuple[str, ...]] = ()
    """Control tokens that it needs; a tokenizer that is trained for it gets them."""
    shifted: ClassVar[bool] = True
    """Whether a label is the token after its place; else the one that belongs there."""
    fresh: ClassVar[bool] = False
    """Whether rows are made anew in each epoch."""

    tokenizer: Tokenizer
    train: Rows
    val: Rows
    facts: dict[str, Any]
    """What was read, in plain values: printed at the start and saved with the run."""

    @dataclass
    class Config(Component):
        """Fields shared by all data."""

        batch_size: int = 32
        """Sequences of one optimizer step, over all ranks."""
        micro_batch_size: int | None = None
        """Sequences of one forward pass on one rank; None: the rank's whole share of the step."""
        batch_tokens: int | None = None
        """Tokens of one optimizer step, padding included, over all ranks: instead of batch_size, as
        many rows of like length as fit; None: steps of batch_size."""
        micro_batch_tokens: int | None = None
        """With batch_tokens, tokens of one forward pass on one rank; None: the rank's share."""

        def __post_init__(self) -> None:
            self.require(self.batch_size > 0, "batch_size", "a number above 0")
            micro = self.micro_batch_size
            self.require(
                micro is None or micro > 0, "micro_batch_size", "a number above 0, or null"
            )
            self.require(
                micro is None or self.batch_size % micro == 0,
                "micro_batch_size",
                f"a divisor of batch_size={self.batch_size}",
            )
            budget = self.batch_tokens
            both = budget is not None
            self.require(budget is None or budget > 0, "batch_tokens", "a number above 0, or null")
            self.require(
                micro is None or not both,
                "micro_batch_size",
                "micro_batch_tokens with batch_tokens",
            )
            tokens = self.micro_batch_tokens
            self.require(
                tokens is None or (both and tokens > 0),
                "micro_batch_tokens",
                "a number above 0 beside batch_tokens, or null",
            )

        def check_ranks(self, world: int) -> None:
            """RequestError where a step cannot be shared out to `world` ranks."""
            if self.batch_tokens is None:
                micro_size(self.batch_size, self.micro_batch_size, world)

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer.Config | Tokenizer,
        *,
        context: int,
        seed: int = 0,
    ) -> None:
        """`tokenizer`: how to make one, or a checkpoint's own; `context`: tokens a row.

        RequestError where the batch of a step does not fit into memory.
        """
        check_batch(config.batch_size, context, config.batch_tokens)
        self.config = config
        self.context = context
        self.seed = seed
        self._tokenizer = tokenizer
        if isinstance(tokenizer, Tokenizer.Config) and tokenizer.path is None:
            missing = [name for name in self.control if name not in tokenizer.control]
            self._tokenizer = replace(tokenizer, control=[*tokenizer.control, *missing])

    def prepare(self) -> None:
        """Make or find in the cache all that the fields above need; RequestError for bad input."""
        raise NotImplementedError

    @property
    def wanted(self) -> Tokenizer.Config | Tokenizer:
        """The tokenizer as it was asked for, with the control tokens that this data needs."""
        return self._tokenizer

    def texts(self, tokenizer: Tokenizer) -> Iterator[str]:
        """The training texts that this tokenizer would be trained on; `prepare` is not needed."""
        raise RequestError(f"data={self.config.name} has no text to train a tokenizer on.")

    def collate(self, rows: Sequence[Batch]) -> Batch:
        """One batch [b t] of rows [t]."""
        return collate(rows)

    def order(self) -> Order:
        """Which training rows each step holds; RequestError where rows cannot be grouped."""
        config = self.config
        if config.batch_tokens is None:
            return Shuffled(len(self.train), config.batch_size, self.seed)
        lengths = self.train.lengths()
        if lengths is None:
            raise RequestError(
                f"data.batch_tokens={config.batch_tokens}: rows of data={config.name} do not tell "
                "their lengths; give data.batch_size."
            )
        return Grouped(lengths, config.batch_tokens, self.seed)

    def step_batches(
        self, start: int = 0, stop: int | None = None, *, rank: int = 0, world: int = 1
    ) -> Steps:
        """Training: the micro-batches of each step, from step `start` on."""
        config, order = self.config, self.order()
        place: Any = {"start": start, "stop": stop, "rank": rank, "world": world}
        if isinstance(order, Grouped):
            return TokenBatches(self.train, order, micro_tokens=config.micro_batch_tokens, **place)
        return StepBatches(
            self.train,
            batch_size=config.batch_size,
            micro_batch_size=config.micro_batch_size,
            seed=self.seed,
            order=order,
            **place,
        )

    def val_batches(self, *, rank: int = 0, world: int = 1) -> EpochBatches:
        """Validation: every held-out row once."""
        return self._once(self.val, rank, world)

    def val_loaders(self, *, rank: int = 0, world: int = 1) -> dict[str | None, EpochBatches]:
        """What is validated on, one after another: each source by its name, or all at once."""
        parts = {name: rows for name, rows in self.val_parts().items() if len(rows)}
        if not parts:
            return {None: self.val_batches(rank=rank, world=world)}
        return {name: self._once(rows, rank, world) for name, rows in parts.items()}

    def _once(self, rows: Rows, rank: int, world: int) -> EpochBatches:
        config = self.config
        size = config.micro_batch_size or max(1, config.batch_size // world)
        if config.batch_tokens is not None:
            tokens = config.micro_batch_tokens or config.batch_tokens // world
            size = max(1, tokens // (self.context * rows.lines))
        return EpochBatches(rows, micro_batch_size=size, rank=rank, world=world)

    def asked(self) -> list[Problem]:
        """Held-out items that a model has to answer at each validation; none by default."""
        return []

    def val_parts(self) -> dict[str, Rows]:
        """Held-out rows by the name of their source, where there are several."""
        return {}

    @property
    def step_rows(self) -> Fraction:
        """Rows of a step, over all ranks; a mean."""
        order = self.order()
        return order.step_rows if isinstance(order, Grouped) else Fraction(self.config.batch_size)

    @property
    def row_tokens(self) -> float:
        """Tokens in a training row, padding left out; a mean."""
        return self.context

    @property
    def sequence(self) -> float:
        """Tokens that may see each other in training; a mean."""
        return self.context

    @property
    def notes(self) -> list[str]:
        """What else a user should know before training begins, a line each."""
        return []

    @property
    def marked(self) -> bool:
        """Whether each of those has one right answer, so that the share of right ones counts."""
        return False

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end an answer, once `prepare` is done."""
        return self.tokenizer.end_ids

    def preview(self, n: int = 3, width: int = 400) -> list[str]:
        """The first `width` characters of the first `n` rows of step 0, as the model gets them."""
        batches = self.step_batches().at(0)
        rows = [row for batch in batches for row in batch["tokens"].tolist()][:n]
        return [shown(self.tokenizer, row)[:width] for row in rows]


def shown(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Text with the control tokens spelled out, runs of padding as a count."""
    names = {i: spelling for spelling, i in tokenizer.control.items()}
    pad = None if tokenizer.pad_id in tokenizer.end_ids else tokenizer.pad_id
    parts, text, pads = [], [], 0
    for i in [*ids, None]:
        if i is None or i in names:
            parts.append(tokenizer.decode(text))
            text = []
        if i is not None and i == pad:
            pads += 1
            continue
        if pads:
            parts.append(f"<pad x {pads}>")
            pads = 0
        if i in names:
            parts.append(names[i])
        elif i is not None:
            text.append(i)
    return "".join(parts)


data = Slot("data", Data, doc="What is trained on and measured with.")
