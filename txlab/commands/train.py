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

from txlab.core.errors import RequestError, report
from txlab.core.files import data_folder
from txlab.core.hydra import prepare, sweep, typed
from txlab.core.hydra.errors import translated
from txlab.core.values import choices

_QUERIES = ("-sc", "--shell-completion", "--shell_completion")
_failure: Exception | None = None


def main(words: Sequence[str]) -> int:
    """Hand the normalised words to Hydra, which runs `job`; once a run in a sweep."""
    global _failure
    completing = any(word in _QUERIES for word in words)
    if completing:
        from txlab.commands.overview import bash_completion
        from txlab.core.hydra import registry

        if "install=bash" in words:
            print(bash_completion())
            return 0
        registry.ready()
    else:
        sweeps = any(word in ("-m", "--multirun", "hydra.mode=MULTIRUN") for word in words)
        words = prepare(words, multirun=sweeps)
    if any(word in ("-h", "--help") for word in words):
        from txlab.commands.overview import everything

        everything(words)
        return 0
    sys.argv = [sys.argv[0], *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors reach us instead of being printed
    _failure, sweep.worst_status = None, 0
    start = hydra.main(
        config_path=str(data_folder("conf")), config_name="config", version_base="1.3"
    )
    try:
        with translated():
            start(job)()
    # The errors of runs are kept in `job`; what arrives here is Hydra's word on the request.
    except OSError as error:
        raise RequestError(
            f"{error.filename}: {error.strerror}; choose another run_dir."
        ) from error
    except (ValueError, AssertionError) as error:
        raise RequestError(str(error)) from error
    if _failure is not None:
        raise _failure
    return sweep.worst_status


def job(tree: DictConfig) -> Any:
    """One run. Failures are kept rather than raised: Hydra would print them in its own way."""
    global _failure
    context = HydraConfig.get()
    folder = Path(context.runtime.output_dir)
    sweeping = context.mode is RunMode.MULTIRUN
    status, result = 0, None
    try:
        config = typed(tree)
        if sweeping or (config.run_dir is None and folder != Path.cwd()):
            config.run_dir = str(folder)
        if sweeping:
            refuse_ranks()
        from txlab.loading import inherited
        from txlab.run import train

        config, changes = inherited(config, list(context.overrides.task))
        for change in changes:
            print(f"surgery     {change}")
        recipe = context.runtime.choices.get("recipe")
        config.logger = tracked(config.logger, recipe or "train", folder if sweeping else None)
        result = train(config, f"{recipe or config.model.name}-{config.model.attn.name}")
    except Exception as error:
        if not sweeping:
            _failure = error
        else:
            status, result = report(error), " ".join(str(error).split())
    if sweeping:
        sweep.record(folder, list(context.overrides.task), status, result or {})
    return result


def tracked(
    logger: dict[str, Any] | None, job_type: str, folder: Path | None
) -> dict[str, Any] | None:
    """Loggers that know the kind of run, and of a run in a sweep the sweep and what it varies."""
    if not logger:
        return logger
    from txlab.train.loggers import tracked as said

    if folder is None:
        return said(logger, job_type=job_type)
    words = HydraConfig.get().overrides.task
    chosen = [word for word in words if word.partition("=")[0].lstrip("+") in _swept()]
    name = " ".join([folder.name, *chosen])
    return said(logger, job_type=job_type, group=folder.parent.name, name=name)


def _swept() -> set[str]:
    """Keys that the command line gives several values."""
    pairs = (word.partition("=") for word in sys.argv[1:])
    return {key.lstrip("+") for key, _, value in pairs if len(choices(value)) > 1 or "(" in value}


def refuse_ranks() -> None:
    """A sweep starts the ranks of its runs itself: several of it would each make their own."""
    from txlab.train.ranks import started

    if started():
        raise RequestError(
            "-m cannot be run by torchrun, which would run the whole sweep in every rank: leave "
            "torchrun away, trainer=ddp trainer.devices=N starts the ranks of each run."
        )
