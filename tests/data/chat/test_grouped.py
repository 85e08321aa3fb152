"""Chats that are not packed, in steps by tokens."""

from pathlib import Path

import pytest

from txlab.core.errors import RequestError
from txlab.data import data
from txlab.data.chat import Chat, Pairs
from txlab.data.tokenizer import BPE
from txlab.testing import tiny


def test_every_chat_once_within_the_budget(tmp_path: Path) -> None:
    config = Chat.Config(
        path=str(tiny.chats(tmp_path)), cache_dir=str(tmp_path / "cache"), packed=False,
        batch_tokens=200,
    )  # fmt: skip
    made = data.build(config, BPE.Config(vocab_size=300), context=128)
    made.prepare()
    lengths = made.train.lengths()
    assert lengths is not None
    assert [len(made.train[i]["tokens"]) for i in range(len(lengths))] == lengths.tolist()
    steps = round(len(made.train) / made.step_rows)
    assert sorted(
        i for step in range(steps) for part in made.step_batches().indices(step) for i in part
    ) == list(range(len(made.train)))
    for batches in made.step_batches(0, steps):
        assert sum(batch["tokens"].numel() for batch in batches) <= 200


def test_pairs_do_not_tell_their_lengths(tmp_path: Path) -> None:
    config = Pairs.Config(n_train=20, n_val=4, cache_dir=str(tmp_path), batch_tokens=200)
    made = data.build(config, BPE.Config(vocab_size=300), context=128)
    made.prepare()
    with pytest.raises(RequestError, match=r"data\.batch_tokens=200: rows of data=pairs do not"):
        made.step_batches()
