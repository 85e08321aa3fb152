"""What libraries say about themselves is not heard inside of a run."""

# pyright: reportPrivateImportUsage=false

import logging

import pytest
import torch

from tests.train.tiny_run import decoder, rows_of
from txlab.objectives.next_token import NextToken
from txlab.train.compiling import BACKEND
from txlab.train.quiet import quiet
from txlab.train.recompute import prepare_blocks


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
def test_selective_recomputation_compiles_without_advice(monkeypatch):
    monkeypatch.setenv(BACKEND, "aot_eager")
    torch._logging.warning_once.cache_clear()
    torch._dynamo.reset()
    heard, logger = Heard(), logging.getLogger("torch._higher_order_ops.wrap")
    logger.addHandler(heard)
    try:
        with quiet():
            model = decoder()
            prepare_blocks(model, how="selective", compiled=True)
            NextToken(NextToken.Config())(model, rows_of(0)).sum.backward()
    finally:
        logger.removeHandler(heard)
    assert heard.lines == []
