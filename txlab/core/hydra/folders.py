"""Folders of sweeps: named once, never shared, never evaluated twice."""

import secrets
import time

from omegaconf import OmegaConf

from txlab.core.values import absolute


def sweep_folder(run_dir: str | None) -> str:
    """`run_dir` itself, or a name that no sweep started in the same second has."""
    if run_dir:
        return absolute(run_dir)
    return absolute(f"runs/sweep-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}")


def register() -> None:
    """Make `${txlab.sweep_folder:...}` known; cached, so that all runs see the same folder."""
    OmegaConf.register_new_resolver(
        "txlab.sweep_folder", sweep_folder, use_cache=True, replace=True
    )
