"""The profiler: a trace and a table of the steps asked for."""

import json

import pytest

from tests.train.tiny_run import rows_of, split
from txlab.core.errors import RequestError
from txlab.train.callbacks.profiler import PHASES, TABLE, TRACE, Profiler, shares, top


def test_it_writes_a_trace_and_what_takes_the_time(run, tmp_path):
    watch = Profiler(tmp_path, skip=1, steps=2, operations=3)
    run(4, callbacks=(watch,), make=lambda step: split(rows_of(step), 2, 2), val=0)
    events = json.loads((tmp_path / TRACE).read_text())["traceEvents"]
    assert sum(event.get("name") == "_LinearCE" for event in events) == 2 * 2
    said = (tmp_path / TABLE).read_text().splitlines()
    assert said[0].startswith("profile     2 steps of ")
    assert [line.split()[0] for line in said[1:6]] == list(PHASES)
    assert len(said) == 6 + 1 + 3
    assert all(watch.seconds[phase] > 0 for phase in PHASES)


def test_lines_by_hand():
    said = shares({"data": 0.1, "forward": 0.3, "backward": 0.6}, 2)
    assert said[0] == "profile     2 steps of 500.0 ms"
    assert said[2].split() == ["forward", "150.0", "ms", "30.0%"]
    assert top([("mm", 3, 6.0), ("add", 1, 2.0)], 1)[1].split() == ["mm", "3", "6.0", "75.0%"]


def test_too_short_a_run_is_refused(tmp_path):
    watch = Profiler(tmp_path, skip=1, steps=2)
    with pytest.raises(RequestError, match=r"2 steps are left, fewer than skip=1 and steps=2"):
        watch.check_plan(None, 2)
    for enough_or_none in (3, 0):
        watch.check_plan(None, enough_or_none)
