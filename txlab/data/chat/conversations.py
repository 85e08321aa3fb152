"""What data of chats and data of pairs have in common: items, tokenizer, template, files."""

import contextlib
import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from txlab.core.errors import RequestError
from txlab.data.cache import absolute, cache_folder, key, whole
from txlab.data.chat import tasks
from txlab.data.chat.items import Items, Kind, from_files, sha256, usable
from txlab.data.chat.messages import Item
from txlab.data.chat.preview import marked
from txlab.data.chat.rows import figures
from txlab.data.chat.tasks import Level, Task
from txlab.data.chat.template import Template
from txlab.data.problem import Problem
from txlab.data.rows import Rows
from txlab.data.source import Data
from txlab.data.store import Store, StoreWriter
from txlab.data.tokenizer.making import obtain
from txlab.data.tokenizer.tokenizer import Tokenizer

VERSION = 1
"""Raise when the same items and settings would give other files."""


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


ASKED, LOOKED_AT = 200, 4
"""Held-out items that are answered at a validation: of tasks, and of a file."""


class Conversations(Data):
    """Items from a file, or made up by tasks, written as ids once and kept."""

    @dataclass
    class Config(Data.Config):
        path: str | None = None
        """A .jsonl file, a folder or pattern of them; None: made-up tasks."""
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

    stores: ClassVar[tuple[str, ...]]
    """Endings of the files that each part is written to."""
    kind: ClassVar[Kind]

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer.Config | Tokenizer,
        *,
        context: int,
        seed: int = 0,
    ) -> None:
        super().__init__(config, tokenizer, context=context, seed=seed)
        self.config: Conversations.Config = config

    def write(self, items: Sequence[Item], writers: Sequence[StoreWriter]) -> None:
        """Write the ids of items into one store for each of `stores`."""
        raise NotImplementedError

    def rows(self, stores: Sequence[Store], items: Sequence[Item], dropped: Counter[str]) -> Rows:
        """Rows over what `write` wrote, for this context; counts what is left out."""
        raise NotImplementedError

    def prepare(self) -> None:
        cache = cache_folder(self.config.cache_dir)
        self.items = self._gather()
        self.tokenizer = self._obtain(cache)
        self.template = Template(self.tokenizer)
        source = key(
            version=VERSION,
            items=self.items.sha256,
            tokenizer=self.tokenizer.fingerprint,
            template=self.tokenizer.template,
            special=dict(self.tokenizer.special),
        )
        folder = cache / self.config.name / source
        if not (folder / "done").exists():
            self._write(folder, source)
        dropped = self.items.dropped.copy()
        self.train = self._rows(folder, source, "train", self.items.train, dropped)
        self.val = self._rows(folder, source, "val", self.items.val, dropped)
        if len(self.train) == 0:
            counts = [f"{n} {name.replace('_', ' ')}" for name, n in sorted(dropped.items())]
            raise RequestError(
                f"{self.items.origin['source']}: there is nothing to train on: of "
                f"{self.items.read} items, {', '.join(counts) or 'none dropped'}, none to train on "
                f"is left at model.context={self.context}."
            )
        sizes = {"train": figures(self.train), "val": figures(self.val)}
        entropy = [found.pop("entropy") for found in sizes.values()][-1]
        self.facts = {
            **self.items.origin,
            "sha256": self.items.sha256,
            "items": self.items.read,
            **{f"dropped_{name}": n for name, n in sorted(dropped.items())},
            **{f"{part}_{name}": n for part, found in sizes.items() for name, n in found.items()},
            "unigram_entropy": entropy,
            "template": sha256(self.tokenizer.template or ""),
            "tokenizer": self.tokenizer.fingerprint,
            "vocab_size": self.tokenizer.vocab_size,
            "context": self.context,
            "cache": str(folder),
        }

    def problems(self, part: str = "val", n: int | None = None) -> list[Problem]:
        """The first `n` items of "train" or "val" whose prompt leaves room for an answer."""
        found: list[Problem] = []
        for item in self.items.val if part == "val" else self.items.train:
            if len(found) == n:
                break
            ids = self.template.prompt(item.prompt)
            if len(ids) < self.context:
                answer = {"role": "assistant", "content": item.answer}
                numbers = self.template.encode([*item.prompt, answer]).answer
                length = numbers.count(len(item.prompt))
                found.append(Problem(item.prompt, ids, item.answer, length))
        return found

    def asked(self) -> list[Problem]:
        n = self.config.n_asked
        return self.problems("val", (ASKED if self._made_up else LOOKED_AT) if n is None else n)

    @property
    def marked(self) -> bool:
        return self._made_up or self.config.n_asked is not None

    @property
    def row_tokens(self) -> float:
        return self.facts["train_tokens"] / self.facts["train_rows"]

    @property
    def sequence(self) -> float:
        return self.facts["train_tokens"] / self.facts["train_items"]

    @property
    def _made_up(self) -> bool:
        return self.config.path is None

    @property
    def end_ids(self) -> tuple[int, ...]:
        return self.template.end_ids

    def preview(self, n: int = 3, width: int = 400) -> list[str]:
        """Rows of step 0 in text; what is supervised stands between guillemets."""
        batch = self.step_batches().at(0)[0]
        count = min(n, len(batch["tokens"]))
        return [marked(self.tokenizer, batch, row)[:width] for row in range(count)]

    def too_long(self, item: Item, length: int, dropped: Counter[str]) -> bool:
        """Whether an item of `length` ids is left out by the policy, and counted."""
        if length <= self.context or self.config.too_long == TooLong.cut:
            return False
        if self.config.too_long == TooLong.refuse:
            raise RequestError(
                f"{item.where}: {length} tokens, model.context={self.context}; raise it, or choose "
                "data.too_long=cut or drop."
            )
        dropped["too_long"] += 1
        return True

    def _gather(self) -> Items:
        config = self.config
        if config.path is not None:
            found = from_files(config.path, config.val_fraction, self.kind)
        else:
            chosen, level = [Task(task) for task in config.tasks], Level(config.level)
            train, val = (
                [self.kind.made(item) for item in part]
                for part in tasks.items(
                    chosen,
                    level,
                    n_train=config.n_train,
                    n_val=config.n_val,
                    seed=config.items_seed,
                )
            )
            origin = {"source": f"tasks {', '.join(chosen)} ({level})"}
            found = Items(train, val, len(train) + len(val), origin, Counter())
        refuse = config.unusable == Unusable.refuse
        return usable(found, self.kind, refuse=refuse, system=config.system)

    def _obtain(self, cache: Path) -> Tokenizer:
        """The tokenizer, with the chosen template; a new one is trained on the rendered chats."""
        text = None
        if self.config.template is not None:
            try:
                text = Path(self.config.template).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise RequestError(
                    f"data.template={self.config.template} cannot be read: {error}."
                ) from error

        def train(fresh: Tokenizer) -> None:
            fresh.template = text or fresh.template
            fresh.train(list(self.items.texts(Template(fresh))))

        source = key(items=self.items.sha256, template=text)
        made = obtain(self._tokenizer, cache=cache, source=source, train=train)
        if text is not None:
            made = copy.copy(made)  # a given one is somebody else's
            made.template = text
        return made

    def _write(self, folder: Path, source: str) -> None:
        about = {
            "vocab_size": self.tokenizer.vocab_size,
            "tokenizer": self.tokenizer.fingerprint,
            "source": source,
        }
        for part, items in (("train", self.items.train), ("val", self.items.val)):
            with contextlib.ExitStack() as stack:
                writers = [StoreWriter(folder / f"{part}.{end}", **about) for end in self.stores]
                self.write(items, [stack.enter_context(writer) for writer in writers])
        with whole(folder / "done") as stream:
            stream.write(b"")

    def _rows(
        self, folder: Path, source: str, part: str, items: Sequence[Item], dropped: Counter[str]
    ) -> Rows:
        size = self.tokenizer.vocab_size
        stores = [
            Store(folder / f"{part}.{end}", vocab_size=size, source=source) for end in self.stores
        ]
        return self.rows(stores, items, dropped)
