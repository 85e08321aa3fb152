"""The settings that data of chats, of pairs and of prompts have in common."""

from dataclasses import dataclass, field
from enum import StrEnum

from txlab.data.cache import absolute
from txlab.data.chat.tasks import Level, Task
from txlab.data.collection import OnError
from txlab.data.source import Data


class TooLong(StrEnum):
    """What becomes of chats that are longer than the context."""

    cut = "cut"
    """The end is cut off; dropped where nothing to learn is left."""
    drop = "drop"
    """Left out and counted."""
    refuse = "refuse"
    """The run is refused."""


class Unusable(StrEnum):
    """What becomes of items that cannot be learned from: no answer, an empty one, two equal."""

    drop = "drop"
    """Left out and counted."""
    refuse = "refuse"
    """The run is refused."""


@dataclass
class Settings(Data.Config):
    """Where items come from, and what becomes of those that do not fit."""

    path: str | None = None
    """A file (JSONL, JSON, CSV, TSV, Parquet, Arrow), a folder or pattern; None: made-up tasks."""
    on_error: OnError = OnError.error
    """What becomes of bad lines, and of chats that the template refuses: error, skip."""
    val_fraction: float = 0.05
    """Part of a file's prompts that is held out for validation."""
    tasks: list[Task] = field(default_factory=lambda: [Task.sort, Task.add, Task.copy])
    """Tasks that items are made up by, in turn, where there is no path."""
    level: Level = Level.easy
    """How large the tasks' items are."""
    n_train: int = 4000
    """Items to train on; a small task may have fewer different ones."""
    n_val: int = 240
    """Items held out; at most a fifth of a task that has too few."""
    n_asked: int | None = None
    """Held-out items that are answered at each validation, and marked: `val/exact_match`. None:
    200 of tasks; 4 of a file, unmarked, to be looked at."""
    items_seed: int = 0
    """Seed of the items; the run's own seed leaves them as they are."""
    system: str | None = None
    """System message for chats that have none."""
    template: str | None = None
    """File with a chat template (Jinja); None: the tokenizer's own."""
    too_long: TooLong = TooLong.cut
    """What becomes of items longer than the context."""
    unusable: Unusable = Unusable.drop
    """What becomes of items that cannot be learned from."""
    cache_dir: str | None = None
    """Folder for tokenizers and tokens; None: $XDG_CACHE_HOME/txlab or ~/.cache/txlab."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 <= self.val_fraction < 1, "val_fraction", "a number from 0 to below 1")
        self.require(self.path != "", "path", "a file, a folder or a pattern, or null")
        self.require(bool(self.tasks), "tasks", f"some of {', '.join(Task)}")
        self.require(len({*self.tasks}) == len(self.tasks), "tasks", "each task once")
        self.require(self.n_train > 0, "n_train", "a number above 0")
        self.require(self.n_val >= 0, "n_val", "0 or more")
        self.require((self.n_asked or 0) >= 0, "n_asked", "0 or more, or null")
        self.path, self.cache_dir = absolute(self.path), absolute(self.cache_dir)
        self.template = absolute(self.template)
