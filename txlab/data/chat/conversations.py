"""What data of chats and data of pairs have in common: items, tokenizer, template, files."""

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.cache import cache_folder, key
from txlab.data.chat import tasks
from txlab.data.chat.forms import Entry, Read
from txlab.data.chat.items import Items, sha256, usable
from txlab.data.chat.messages import Item, split
from txlab.data.chat.reading import FAULTS, read
from txlab.data.chat.rows import figures
from txlab.data.chat.settings import Settings, TooLong, Unusable
from txlab.data.chat.tasks import Level, Task
from txlab.data.chat.template import Template
from txlab.data.chat.written import DONE, Refused, write
from txlab.data.collection import OnError
from txlab.data.preview import marked, spans
from txlab.data.problem import Problem
from txlab.data.rows import Rows
from txlab.data.source import Data
from txlab.data.store import Store
from txlab.data.tokenizer.making import obtain
from txlab.data.tokenizer.tokenizer import Tokenizer

VERSION = 3
"""Raise when the same items and settings would give other files."""
ASKED, LOOKED_AT = 200, 4
"""Held-out items that are answered at a validation: of tasks, and of a file."""


class Conversations(Data):
    """Items from files, or made up by tasks, written as ids once and kept."""

    @dataclass
    class Config(Settings):
        pass

    stores: ClassVar[tuple[str, ...]]
    """Endings of the files that each part is written to."""

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

    def parse(self, entry: Entry, where: str) -> Read:
        """The item of a line; RequestError with `where` for what cannot be read."""
        raise NotImplementedError

    def made(self, item: Item) -> Item:
        """What is taken of a task's item."""
        return item

    def unusable(self, item: Item) -> str | None:
        """Why nothing can be learned from an item, as the name of a count; None where it can."""
        return None

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the ids beside items, tokenizer and template."""
        return {}

    def encode(self, item: Item) -> list[list[list[int]]]:
        """Ids of an item for each of `stores`, as one or more documents."""
        raise NotImplementedError

    def rows(self, stores: Sequence[Store], items: Sequence[Item], dropped: Counter[str]) -> Rows:
        """Rows over what `encode` gave, for this context; counts what is left out."""
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
            skip=self._skips,
            **self.identity,
        )
        folder = cache / self.config.name / source
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
        unk = self.tokenizer.unk_id
        sizes = {"train": figures(self.train, unk), "val": figures(self.val, unk)}
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
            problem = self._problem(item)
            if len(problem.prompt_ids) < self.context:
                found.append(problem)
        return found

    def _problem(self, item: Item) -> Problem:
        ids = self.template.prompt(item.prompt)
        answer = {"role": "assistant", "content": item.answer}
        numbers = self.template.encode([*item.prompt, answer]).answer
        return Problem(item.prompt, ids, item.answer, numbers.count(len(item.prompt)))

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
        return [marked(spans(self.tokenizer, batch, row))[:width] for row in range(count)]

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

    @property
    def notes(self) -> list[str]:
        ignored = self.items.origin.get("ignored_keys", {})
        said = ", ".join(f"{name} ({n:,} lines)" for name, n in sorted(ignored.items()))
        return [f"keys that are left alone: {said}"] if ignored else []

    @property
    def _skips(self) -> bool:
        return self.config.on_error == OnError.skip

    def _gather(self) -> Items:
        config = self.config
        if config.path is not None:
            paths = files.find(config.path)
            reading = read(paths, self.parse, OnError(config.on_error))
            train, val = split(reading.items, config.val_fraction)
            origin = {"source": config.path, "files": len(paths), **reading.facts}
            n, files_ = reading.unreadable, reading.unreadable_files
            dropped = +Counter({"unreadable": n, "unreadable_files": files_})
            found = Items(train, val, len(reading.items) + n, origin, dropped)
        else:
            chosen, level = [Task(task) for task in config.tasks], Level(config.level)
            train, val = (
                [self.made(item) for item in part]
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
        return usable(found, self.unusable, refuse=refuse, system=config.system)

    def texts(self, tokenizer: Tokenizer) -> Iterator[str]:
        text = self._chosen_template()
        if text is not None:
            tokenizer = copy.copy(tokenizer)
            tokenizer.template = text
        return self._gather().texts(Template(tokenizer), skip=self._skips)

    def _chosen_template(self) -> str | None:
        if self.config.template is None:
            return None
        try:
            return Path(self.config.template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(
                f"data.template={self.config.template} cannot be read: {error}."
            ) from error

    def _obtain(self, cache: Path) -> Tokenizer:
        """The tokenizer, with the chosen template; a new one is trained on the rendered chats."""
        text = self._chosen_template()

        def train(fresh: Tokenizer) -> None:
            fresh.template = text or fresh.template
            fresh.train(list(self.items.texts(Template(fresh), skip=self._skips)))

        source = key(items=self.items.sha256, template=text)
        made = obtain(self._tokenizer, cache=cache, source=source, train=train)
        if text is not None:
            made = copy.copy(made)  # a given one is somebody else's
            made.template = text
        return made

    def _write(self, folder: Path, source: str) -> None:
        if not (folder / DONE).exists():
            write(
                folder,
                {"train": self.items.train, "val": self.items.val},
                self.stores,
                self.encode,
                skip=self._skips,
                vocab_size=self.tokenizer.vocab_size,
                tokenizer=self.tokenizer.fingerprint,
                source=source,
            )
        refused = Refused.read(folder)
        if any(refused.numbers.values()):
            train, val = (set(refused.numbers[part]) for part in ("train", "val"))
            self.items = self.items.without(train, val, "template_refused")
            faults = [*self.items.origin.get("faults", []), *refused.faults]
            self.items.origin = {**self.items.origin, "faults": faults[:FAULTS]}

    def _rows(
        self, folder: Path, source: str, part: str, items: Sequence[Item], dropped: Counter[str]
    ) -> Rows:
        size = self.tokenizer.vocab_size
        stores = [
            Store(folder / f"{part}.{end}", vocab_size=size, source=source) for end in self.stores
        ]
        return self.rows(stores, items, dropped)
