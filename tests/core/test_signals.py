import os
import signal
import threading

import pytest

from txlab.core.signals import answered


def test_answers_inside_and_gives_back_what_was_there_even_after_an_error() -> None:
    heard: list[int] = []
    before = signal.getsignal(signal.SIGUSR2)

    def fail() -> None:
        with answered([signal.SIGUSR2], lambda number, frame: heard.append(number)):
            os.kill(os.getpid(), signal.SIGUSR2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert heard == [signal.SIGUSR2]
    assert signal.getsignal(signal.SIGUSR2) is before


def test_another_thread_changes_nothing() -> None:
    before, seen = signal.getsignal(signal.SIGUSR2), []

    def other() -> None:
        with answered([signal.SIGUSR2], lambda number, frame: None):
            seen.append(signal.getsignal(signal.SIGUSR2))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [before]
