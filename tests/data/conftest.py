"""What the data tests share: small stores, and a text data set in a cache of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from txlab.data import Text, data
from txlab.data.shards import Shards
from txlab.data.store import Store, StoreWriter
from txlab.data.tokenizer import BPE

# Timing is nobody's business on shared cores, and a red test is to be red again.
settings.register_profile("data", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("data")


@pytest.fixture(scope="session")
def make_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Shards]:
    """Write documents, given as lists of ids, into a store and open it."""

    def make(documents: Sequence[Sequence[int]], vocab_size: int = 1000) -> Shards:
        file = tmp_path_factory.mktemp("store") / "some.tokens"
        with StoreWriter(file, vocab_size=vocab_size, tokenizer="t", source="s") as writer:
            for ids in documents:
                writer.add(list(ids))
                writer.end()
        return Shards([Store(file, vocab_size=vocab_size)])

    return make


@pytest.fixture
def make_text(tmp_path: Path) -> Callable[..., Text]:
    """Prepare a `Text` with an own cache; keywords are fields of its config."""

    def make(*, context: int = 8, vocab_size: int = 300, **fields: object) -> Text:
        config = Text.Config(**{"cache_dir": str(tmp_path / "cache"), **fields})
        made = data.build(config, BPE.Config(vocab_size=vocab_size), context=context, seed=0)
        made.prepare()
        return made

    return make
