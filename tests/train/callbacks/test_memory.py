"""Memory in every row."""

from txlab.train.callbacks.memory import Memory


def test_every_row_has_memory(run):
    done = run(2, callbacks=(Memory(),), val=0)
    for row in done.log.rows:
        assert 10 < row["memory_mib"] <= row["peak_memory_mib"] < 1e6
