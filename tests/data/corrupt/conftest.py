from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from txlab.data.source import data
from txlab.data.tokenizer import BPE
from txlab.testing import tiny


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Any]:
    """`made(name, context=..., seed=..., **fields)`: the data option over the tiny corpus."""

    def make(name: str, *, context: int = 64, seed: int = 0, **fields: Any) -> Any:
        option = data.options[name]
        config = option.config(
            path=str(tiny.corpus(tmp_path / "corpus", documents=60)),
            cache_dir=str(tmp_path / "cache"),
            batch_size=2,
            **fields,
        )
        size = 400 + len(option.cls.control)
        built = data.build(config, BPE.Config(vocab_size=size), context=context, seed=seed)
        built.prepare()
        return built

    return make
