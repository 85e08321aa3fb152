"""What all kinds of corrupted text have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import Tensor

from txlab.core.errors import RequestError
from txlab.data.batch import Batch
from txlab.data.chance import HELD_OUT
from txlab.data.rows import FreshRows, Rows, collate
from txlab.data.text import Text
from txlab.data.tokenizer.tokenizer import Tokenizer

Row = dict[str, Tensor]


class Corrupted(FreshRows):
    """Rows of text, each corrupted anew in each epoch, and always the same way where held out."""

    def __init__(self, text: Rows, corrupt: "CorruptedText", *, training: bool) -> None:
        self.text = text
        self._corrupt = corrupt
        # Held-out rows do not follow the seed: runs with different seeds are measured alike.
        self._seed = corrupt.seed if training else HELD_OUT

    def __len__(self) -> int:
        return len(self.text)

    def drawn(self, indices: Sequence[int], epochs: Sequence[int]) -> Batch:
        whole: Any = self.text.batch(indices)
        rows: list[Row] = []
        for number, (index, epoch) in enumerate(zip(indices, epochs, strict=True)):
            row = {name: tensor[number] for name, tensor in whole.items()}
            rows.append(self._corrupt.corrupted(row, seed=self._seed, epoch=epoch, number=index))
        return collate(cast(list[Batch], rows))


class CorruptedText(Text):
    """Text whose rows are corrupted as they are drawn; the stored text is that of data=text."""

    fresh: ClassVar[bool] = True

    @dataclass
    class Config(Text.Config):
        """Fields of text; those of the corruption follow."""

    def corrupted(self, row: Row, *, seed: int, epoch: int, number: int) -> Row:
        """The row [t] corrupted: a pure function of its arguments."""
        raise NotImplementedError

    def spare(self, context: int) -> int:
        """Places of a row that the text must leave free for what the corruption adds."""
        return 0

    @property
    def width(self) -> int:
        return self.context - self.spare(self.context)

    def prepare(self) -> None:
        super().prepare()
        self.facts["unigram_entropy"] = None  # of all the text, and only some is predicted
        self._controls = [self._control(spelling) for spelling in self.control]
        self.train = Corrupted(self.train, self, training=True)
        self.val = Corrupted(self.val, self, training=False)

    def _control(self, spelling: str) -> int:
        """The id of a control token that the corruption needs; RequestError where there is none."""
        found = control_id(self.tokenizer, spelling)
        if found is None:
            raise RequestError(
                f"data={self.config.name} needs a control token {spelling!r}, and the tokenizer "
                f"has none; train a new one, which gets it, or choose another one. It has: "
                f"{' '.join(self.tokenizer.control) or 'none'}."
            )
        return found


def control_id(tokenizer: Tokenizer, spelling: str) -> int | None:
    """The id of a control token, under this spelling or the name `<mask>` is known by."""
    if spelling in tokenizer.control:
        return tokenizer.control[spelling]
    named = tokenizer.special.get(f"{spelling.strip('<|>')}_token")
    return None if named is None else tokenizer.control.get(named)
