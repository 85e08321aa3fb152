"""Train: Hydra composes the run, its flags (--cfg job, -m, -sc ...) are stock."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from txlab.core.errors import RequestError
from txlab.core.files import data_folder
from txlab.core.hydra import prepare, sweep_words, typed
from txlab.core.hydra.errors import translated

_QUERIES = ("-sc", "--shell-completion", "--shell_completion")
_SWEEPS = ("-m", "--multirun", "hydra.mode=MULTIRUN")
_failure: Exception | None = None


def main(words: Sequence[str]) -> int:
    """Hand the normalised words to Hydra, which runs `job`; once a run in a sweep."""
    global _failure
    completing = any(word in _QUERIES for word in words)
    sweeps = any(word in _SWEEPS for word in words)
    if completing:
        from txlab.commands.overview import bash_completion
        from txlab.core.hydra import registry

        if "install=bash" in words:
            print(bash_completion())
            return 0
        registry.ready()
    else:
        words = prepare(words, multirun=sweeps)
    if any(word in ("-h", "--help") for word in words):
        from txlab.commands.overview import everything

        everything(words)
        return 0
    if sweeps:
        from txlab.commands.sweeping import sweep

        return sweep(words)
    if not completing:
        sweep_words.check_single(words)
    _failure = None
    start(words)
    if _failure is not None:
        raise _failure
    return 0


def start(words: Sequence[str]) -> None:
    """Hydra's own main on normalised words; RequestError where it refuses them."""
    sys.argv = [sys.argv[0], *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors reach us instead of being printed
    run = hydra.main(config_path=str(data_folder("conf")), config_name="config", version_base="1.3")
    try:
        with translated():
            run(job)()
    # The errors of runs are kept in `job`; what arrives here is Hydra's word on the request.
    except OSError as error:
        raise RequestError(
            f"{error.filename}: {error.strerror}; choose another run_dir."
        ) from error
    except (ValueError, AssertionError) as error:
        raise RequestError(str(error)) from error


def job(tree: DictConfig) -> Any:
    """One run. Failures are kept rather than raised: Hydra would print them in its own way."""
    global _failure
    context = HydraConfig.get()
    if context.mode is RunMode.MULTIRUN:
        from txlab.commands import arm

        return arm.run(tree)
    folder = Path(context.runtime.output_dir)
    try:
        config = typed(tree)
        if config.run_dir is None and folder != Path.cwd():
            config.run_dir = str(folder)
        from txlab.loading import inherited
        from txlab.run import train
        from txlab.train.loggers import tracked

        config, changes = inherited(config, list(context.overrides.task))
        for change in changes:
            print(f"surgery     {change}")
        recipe = context.runtime.choices.get("recipe")
        config.logger = tracked(config.logger, job_type=recipe or "train")
        return train(config, f"{recipe or config.model.name}-{config.model.attn.name}")
    except Exception as error:
        _failure = error
        return None
