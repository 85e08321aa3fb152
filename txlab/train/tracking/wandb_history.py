"""W&B's record of a run on this machine, read back and cut.

A process writes `wandb/offline-run-TIME-ID/run-ID.wandb`: seven bytes, then a log in blocks of
32 KiB. A record that does not fit into its block lies there in pieces; each piece has a head of
checksum, length and kind. What a killed process has not written yet is simply missing at the end.
"""

import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START, BLOCK, HEAD = 7, 2**15, struct.Struct("<IHB")
FIRST, MIDDLE, LAST = 2, 3, 4


def segments(folder: Path, run_id: str) -> list[Path]:
    """Files of all processes that logged into the run, oldest first."""
    found = folder.glob(f"wandb/*run-*-{run_id}/run-{run_id}.wandb")
    return sorted(found, key=lambda file: file.parent.name.removeprefix("offline-"))


def records(file: Path) -> Iterator[tuple[int, Any]]:
    """Where each whole record begins, and the record, as W&B's protobuf message."""
    from wandb.proto import wandb_internal_pb2 as messages

    raw = file.read_bytes()
    place, begin, whole = START, START, b""
    while place + HEAD.size <= len(raw):
        if BLOCK - place % BLOCK < HEAD.size:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = HEAD.unpack_from(raw, place)
        end = place + HEAD.size + length
        if end > len(raw):
            return
        if kind not in (MIDDLE, LAST):
            begin, whole = place, b""
        whole += raw[place + HEAD.size : end]
        place = end
        if kind not in (FIRST, MIDDLE):
            record = getattr(messages, "Record")()  # noqa: B009
            record.ParseFromString(whole)
            yield begin, record


def rows(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """(step, values by name) of each row of the history."""
    found = [record.history for _, record in records(file) if record.HasField("history")]
    return [(history.step.num, _values(history.item)) for history in found]


def cut(file: Path, step: int) -> int:
    """Let the file end before its first row beyond `step`; the last step that is left in it."""
    last = 0
    for begin, record in records(file):
        if not record.HasField("history"):
            continue
        if record.history.step.num > step:
            half = file.with_suffix(".tmp")
            shutil.copyfile(file, half)
            os.truncate(half, begin)
            half.replace(file)
            break
        last = record.history.step.num
    return last


def go_back(folder: Path, run_id: str, step: int) -> int:
    """Cut the run at `step`; the last step that is left.

    What has been sent to the server is not cut: there it stays.
    """
    last = 0
    for file in segments(folder, run_id):
        sent = not file.parent.name.startswith("offline-") or _mark(file).exists()
        last = max([last, *(at for at, _ in rows(file))] if sent else [last, cut(file, step)])
    return last


def _mark(file: Path) -> Path:
    """What `wandb sync` leaves beside a file that it has sent."""
    return file.with_name(f"{file.name}.synced")


def _values(items: Any) -> dict[str, Any]:
    """Values by name; the parts of a table or picture by `name.part`."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}
