"""Run folders: named once, never shared, never evaluated twice."""

import secrets
import time

from omegaconf import OmegaConf

from txlab.core.values import absolute


def run_folder(run_dir: str | None, *words: str | None) -> str:
    """`run_dir` itself, or a name that no run started in the same second has.

    The random part does what a clock cannot: a sweep's jobs and a cluster's nodes start together.
    """
    if run_dir:
        return absolute(run_dir)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return "/".join(
        ["runs", "-".join([stamp, *(word for word in words if word), secrets.token_hex(3)])]
    )


def register() -> None:
    """Make `${txlab.run_folder:...}` known; cached, so that every reader sees the same folder."""
    OmegaConf.register_new_resolver("txlab.run_folder", run_folder, use_cache=True, replace=True)
