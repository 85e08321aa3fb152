"""Answering signals for a while."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def answered(numbers: Iterable[int], handler: Callable[[int, Any], None]) -> Iterator[None]:
    """`handler` answers these signals inside of this; outside, who did so before.

    Only a main thread may answer signals; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
