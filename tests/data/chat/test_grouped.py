"""Chats that are not packed, in steps by tokens."""

from pathlib import Path

from txlab.data import data
from txlab.data.chat import Chat
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
