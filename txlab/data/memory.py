"""Whether the batch of a step can be held at all: asked before anything is read or allocated."""

import os

from txlab.core.errors import RequestError

BYTES = 64
"""Of a token in a batch: five tables of up to 8 bytes, and the copies while they are made."""


def check_batch(rows: int, context: int, tokens: int | None = None) -> None:
    """RequestError where a step's `rows` of `context` tokens do not fit into the free memory.

    With `tokens` a step has these instead. That is the data alone; what a model makes of a
    micro-batch is usually much more.
    """
    said = f"data.batch_size={rows} x model.context={context}"
    if tokens is not None:
        said = f"data.batch_tokens={tokens}:"
    needed, free = (tokens or rows * context) * BYTES, available()
    if needed > free:
        raise RequestError(
            f"{said} tokens take {needed / 2**30:,.1f} GiB a step, {free / 2**30:,.1f} GiB are "
            "free: make one of them smaller."
        )


def available() -> int:
    """Bytes of memory that are free on this machine; all it has where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            lines = dict(line.split(":", 1) for line in stream)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
