"""What every test gets: one thread, no plugins of this machine, shapes checked as annotated."""

import os

os.environ.setdefault("TXLAB_PLUGINS", "off")
os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
import torch

from tests.shapes import check_shapes

torch.set_num_threads(1)
check_shapes("txlab.nn", "txlab.models", "txlab.objectives")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = []
    if not config.getoption("--slow"):
        left_out.append(("slow", pytest.mark.skip(reason="slow: run with --slow")))
    if "real" not in config.getoption("-m"):
        left_out.append(("real", pytest.mark.skip(reason="real: run with -m real")))
    for item in items:
        for name, skip in left_out:
            if name in item.keywords:
                item.add_marker(skip)
