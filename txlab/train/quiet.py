"""Silences what Lightning says about itself; what it says about a run, we say better."""

import contextlib
import logging
import warnings
from collections.abc import Iterator

LOGGERS = (
    "lightning.pytorch",
    "lightning.fabric",
    "torch.distributed.tensor._redistribute",
    "torch._higher_order_ops.wrap",  # a selective recomputation under the compiler: meant so
)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No tips, advice or double lines from Lightning inside of this; errors come through."""
    import lightning.pytorch  # noqa: F401  (sets the level of its loggers when imported)
    from lightning.fabric.utilities.warnings import PossibleUserWarning

    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=PossibleUserWarning)
        warnings.filterwarnings("ignore", message=".*IterableDataset. has .__len__. defined.*")
        warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*")
        # Nothing held out is a choice: data.val_fraction=0.
        warnings.filterwarnings("ignore", message="Total length of `list` across ranks is zero.*")
        try:
            for name in LOGGERS:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
