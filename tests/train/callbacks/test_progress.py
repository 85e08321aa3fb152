"""The progress line: rewritten on a terminal, plain lines elsewhere."""

import io
from types import SimpleNamespace

from txlab.train.callbacks.progress import Progress

MAIN = SimpleNamespace(is_global_zero=True)
MODULE = SimpleNamespace(total_steps=100, counters=SimpleNamespace(step=50, seconds=25.0))
ROW = {"step": 50, "train/loss": 2.5, "lr": 0.001, "tokens_per_s": 1234.0, "mfu": 0.31, "tokens": 9}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, *rows, **fields):
    progress = Progress(stream, **fields)
    for row in rows:
        progress.on_row(MAIN, MODULE, row)
    return stream.getvalue()


def test_line_has_step_loss_speed_mfu_and_time_left():
    text = shown(io.StringIO(), ROW)
    for part in ("step  50/100", "loss 2.5000", "1,234 tokens/s", "MFU 31.0 %", "0:25 left"):
        assert part in text
    assert text.endswith("\n")


def test_a_terminal_gets_one_line_that_is_rewritten():
    text = shown(Terminal(), ROW, {**ROW, "step": 60}, {**ROW, "step": 70, "val/loss": 3.0})
    assert text.count("\r") == 3
    assert text.count("\n") == 1
    assert "[##########----------]" in text


def test_a_pipe_is_not_flooded_but_sees_validations_and_the_end():
    rows = [{**ROW, "step": step} for step in range(51, 60)]
    text = shown(io.StringIO(), *rows, {**ROW, "val/loss": 3.0}, {**ROW, "step": 100}, quiet=60.0)
    assert text.count("\n") == 3
    assert "val 3.0000" in text


def test_news_do_not_garble_the_line():
    stream = Terminal()
    progress = Progress(stream)
    progress.on_row(MAIN, MODULE, ROW)
    progress.say("update skipped")
    assert stream.getvalue().endswith("left\nupdate skipped\n")
