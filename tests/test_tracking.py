"""What W&B has of a sweep: a run each, in one group, with the whole config (WB-01); read back from
the offline files, since nothing of it may need a server."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_command_line import txlab

BLOCK = 2**15
FIRST, MIDDLE, LAST = 2, 3, 4


def records(file: Path) -> Iterator[bytes]:
    """The records of an offline run: a log of blocks, in which long records lie in pieces."""
    raw, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(raw):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", raw, place)
        part = raw[place + 7 : place + 7 + length]
        place += 7 + length
        whole = part if kind not in (MIDDLE, LAST) else whole + part
        if kind not in (FIRST, MIDDLE):
            yield whole


def tracked(file: Path) -> tuple[Any, dict[str, Any], int]:
    """(the run, its config, how many rows it has)."""
    from wandb.proto.wandb_internal_pb2 import Record

    run, config, rows = None, {}, 0
    for raw in records(file):
        record = Record()
        record.ParseFromString(raw)
        run = record.run if record.HasField("run") else run
        updates = [*record.run.config.update, *record.config.update]
        config |= {entry.key: json.loads(entry.value_json) for entry in updates if entry.key}
        rows += record.HasField("history")
    return run, config, rows


@pytest.mark.slow
def test_a_run_each_in_one_group_with_all_of_the_config(tmp_path: Path):
    """The second of three fails; the others, and the sweep's table, are there all the same."""
    words = ["debug=fast", "train.steps=2", "train.sample=null", "logger=wandb"]
    done = txlab(*words, "-m", "model.n_heads=4,5,8", cwd=tmp_path, WANDB_MODE="offline")
    assert done.returncode == 2
    assert "run 1 failed: model.dim=32 is not a multiple of model.n_heads=5" in done.stdout
    assert "WARNING" not in done.stderr
    files = sorted(tmp_path.glob("runs/sweep-*/*/wandb/offline-run-*/*.wandb"))
    (sweep,) = (tmp_path / "runs").iterdir()
    assert [file.relative_to(sweep).parts[0] for file in files] == ["0", "2"]
    found = [tracked(file) for file in files]
    assert len({run.run_id for run, _, _ in found}) == 2
    for (run, config, rows), n_heads in zip(found, (4, 8), strict=True):
        assert (run.run_group, run.job_type) == (sweep.name, "train")
        assert f"model.n_heads={n_heads}" in run.display_name
        assert rows == 2
        assert config["model"]["n_heads"] == n_heads
        chosen = {part: config["model"][part]["name"] for part in ("attn", "ffn", "norm", "pos")}
        assert chosen == {"attn": "gqa", "ffn": "swiglu", "norm": "rmsnorm", "pos": "rope"}
        assert config["optim"]["name"] == "adamw"
        assert {"adapter", "data", "objective", "schedule", "tokenizer"} <= config.keys()
        assert config["train"]["steps"] == 2
    assert (sweep / "sweep.csv").read_text().count("\n") == 4
    assert (sweep / "sweep.png").exists()
