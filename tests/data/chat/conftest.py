"""Chats and pairs prepared from a few lines, in a cache of their own."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from txlab.data import Chat, Pairs, data
from txlab.data.tokenizer import BPE, Tokenizer


@pytest.fixture(scope="session")
def bytewise() -> BPE:
    """A tokenizer whose every token is one byte, so that lengths are plain to see."""
    made = BPE(BPE.Config(vocab_size=261))
    made.train(["ab"])
    return made


@pytest.fixture
def make(tmp_path: Path, bytewise: BPE) -> Callable[..., Any]:
    """Prepare `kind` from entries (None: made-up tasks); keywords are fields of its config."""

    def prepared(
        kind: type[Chat | Pairs],
        entries: Sequence[Any] | None = None,
        *,
        context: int = 64,
        tokenizer: Tokenizer | Tokenizer.Config = bytewise,
        seed: int = 0,
        **fields: Any,
    ) -> Any:
        if entries is not None:
            file = tmp_path / "items.jsonl"
            file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
            fields = {"path": str(file), "val_fraction": 0.0, **fields}
        config = kind.Config(**{"cache_dir": str(tmp_path / "cache"), "batch_size": 2, **fields})
        made = data.build(config, tokenizer, context=context, seed=seed)
        made.prepare()
        return made

    return prepared
