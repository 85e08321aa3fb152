import pytest

import txlab
from txlab.core.errors import RequestError
from txlab.data.memory import available, check_batch
from txlab.run import train


def test_a_batch_that_no_memory_holds_is_refused_before_anything_is_done(tmp_path) -> None:
    words = ["data.batch_size=1e9", f"run_dir={tmp_path}/run", f"data.cache_dir={tmp_path}/cache"]
    config = txlab.compose([*words, "model.context=1024", "train.steps=1"])
    with pytest.raises(RequestError) as refusal:
        train(config)
    said = str(refusal.value)
    assert said.startswith("data.batch_size=1000000000 x model.context=1024 tokens take 61,035.2 G")
    assert list(tmp_path.iterdir()) == []


def test_the_border_is_the_free_memory(monkeypatch) -> None:
    monkeypatch.setattr("txlab.data.memory.available", lambda: 64 * 100)
    check_batch(10, 10)
    with pytest.raises(RequestError):
        check_batch(10, 11)


def test_free_memory_is_known() -> None:
    assert 2**20 < available() < 2**50
