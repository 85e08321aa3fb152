"""Lightning's Trainer, loggers and callbacks from the config's free mappings."""

import inspect
import pkgutil
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.loggers import Logger

from txlab.core.errors import RequestError
from txlab.core.hydra import keys
from txlab.train.config import Train
from txlab.train.loggers import WANDB, Guarded, check_wandb, failure, wandb_arguments
from txlab.train.strategy.checks import check_precision

Say = Callable[[str], None]


def make_trainer(
    given: dict[str, Any] | None,
    train: Train,
    callbacks: Sequence[Callback],
) -> Trainer:
    """The trainer; RequestError where `given` has a key that txlab sets itself."""
    defaults: dict[str, Any] = {
        "_target_": "lightning.pytorch.Trainer",
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    owned: dict[str, Any] = {
        # The loader holds exactly the steps that are left, so one "epoch" is the whole run.
        "max_epochs": 1,
        "check_val_every_n_epoch": None,
        "val_check_interval": 1,  # replaced step by step: TrainModule.on_train_batch_end
        "limit_val_batches": train.val_batches,
        "precision": train.precision,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
        "enable_checkpointing": False,
        "callbacks": list(callbacks),
        "logger": False,  # set when all else is known to be right: some write files when made
    }
    for key in given or {}:
        if key in keys.OWNED:
            raise RequestError(keys.owned(key))
        if key in owned:
            raise RequestError(f"trainer.{key} is set by txlab: leave it out.")
    check_precision(given or {}, train)
    arguments = {**defaults, **(given or {}), **owned}
    with warnings.catch_warnings():  # what Lightning would do instead is refused below
        warnings.filterwarnings("ignore", message=".*fp16 is not supported on CPU.*")
        try:
            trainer = _instantiate("trainer", arguments)
        except RuntimeError as error:  # what a SLURM job was asked for, say
            raise RequestError(f"trainer: {_line(error)}") from error
    if train.precision == "16-mixed" and trainer.strategy.root_device.type == "cpu":
        raise RequestError(
            "train.precision=16-mixed needs a GPU (on a CPU it would be bf16): use bf16-mixed."
        )
    return trainer


def fit(trainer: Trainer, module: LightningModule, data: LightningDataModule) -> None:
    """Train; an interruption is one, where Lightning would end the process with status 1."""
    try:
        trainer.fit(module, datamodule=data)
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from end
        raise
    except MisconfigurationException as error:  # of somebody's callback, say
        raise RequestError(f"Lightning: {_line(error)}") from error


def make_callbacks(given: dict[str, Any] | None, run_dir: Path) -> list[Callback]:
    """Callbacks by name, ours and other people's; one that takes a `run_dir` gets the run's."""
    made: list[Callback] = []
    for name, entry in _entries("callbacks", given):
        key = f"callbacks.{name}"
        takes = _parameters(key, entry)
        for field, value in _arguments(entry).items():
            if field in takes:
                _check_kind(f"{key}.{field}", value, takes[field].annotation)
        one = _instantiate(key, ({"run_dir": run_dir} if "run_dir" in takes else {}) | entry)
        if not isinstance(one, Callback):
            raise RequestError(
                f"{key}._target_={entry['_target_']} gives {type(one).__name__}: expected a "
                "Callback of Lightning's."
            )
        made.append(one)
    return made


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", dict: "keys below it"}


def _parameters(key: str, entry: dict[str, Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(_located(key, entry)).parameters
    except (TypeError, ValueError) as error:
        raise RequestError(f"{key}._target_={entry['_target_']} is no class to build.") from error


def _check_kind(key: str, value: Any, annotation: Any) -> None:
    """Refuse what a plain annotation rules out: comparisons would end in Python's own words."""
    kind = typing.get_origin(annotation) or annotation
    if value is None or kind not in _KINDS:
        return
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise RequestError(f"{key}={value}: expected {_KINDS[kind]}.")


def check_plan(callbacks: Sequence[Any], module: Any, left: int) -> None:
    """Let each callback that can, ours or other people's, refuse a run of `left` more steps."""
    for callback in callbacks:
        if hasattr(callback, "check_plan"):
            callback.check_plan(module, left)


def check_loggers(given: dict[str, Any] | None) -> None:
    """Refuse, before a run writes anything, a logger that nobody can make."""
    for name, entry in _entries("logger", given):
        target = _located(f"logger.{name}", entry)
        if isinstance(target, type) and not issubclass(target, Logger):
            raise RequestError(
                f"logger.{name}._target_={entry['_target_']} is not a Logger of Lightning's."
            )
        try:
            inspect.signature(target).bind_partial(**_arguments(entry))
            getattr(target, "check", dict)(**_arguments(entry))
        except (TypeError, ValueError) as error:
            raise RequestError(f"logger.{name}: refused: {_line(error)}") from error
        check_wandb(name, entry)


def make_loggers(
    given: dict[str, Any] | None, run_dir: Path, say: Say, resumed_step: int = 0
) -> list[Logger]:
    """Loggers, by name; one that cannot be made is left out with one line."""
    made: list[Logger] = []
    for name, entry in _entries("logger", given):
        target = _located(f"logger.{name}", entry)
        if target.__name__ == WANDB:
            entry = wandb_arguments(run_dir, entry, say)
        elif "save_dir" in inspect.signature(target).parameters and entry.get("save_dir") is None:
            entry = {**entry, "save_dir": str(run_dir)}
        try:
            inner = _instantiate(f"logger.{name}", entry)
            if target.__name__ == WANDB and "anonymous" not in entry:
                # Lightning hands on a setting that wandb has given up, and warns of at every run.
                getattr(inner, "_wandb_init", {}).pop("anonymous", None)
            made.append(guarded := Guarded(name, inner, say))
            guarded.tell(lambda tracker: tracker.attach(run_dir, resumed_step, say))
        except RequestError:
            raise
        except Exception as error:
            say(failure(name, error))
    return made


def _entries(key: str, given: dict[str, Any] | None) -> list[tuple[str, dict[str, Any]]]:
    found = [(name, entry) for name, entry in (given or {}).items() if entry is not None]
    for name, entry in found:
        if not (isinstance(entry, dict) and "_target_" in entry):
            raise RequestError(f"{key}.{name} has no _target_: name the class to build.")
    return found


def _located(key: str, entry: dict[str, Any]) -> Any:
    try:
        return pkgutil.resolve_name(str(entry["_target_"]))
    except Exception as error:
        raise RequestError(
            f"{key}._target_={entry['_target_']} cannot be imported: {_line(error)}"
        ) from error


def _instantiate(key: str, entry: dict[str, Any]) -> Any:
    """Build `entry`; nested mappings with a `_target_` are built first."""
    target = _located(key, entry)
    arguments = {k: _nested(f"{key}.{k}", value) for k, value in _arguments(entry).items()}
    try:
        return target(**arguments)
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise RequestError(
            f"{key}: {target.__name__} refuses its arguments: {_line(error)}"
        ) from error


def _arguments(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "_target_"}


def _nested(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        if "_target_" in value:
            return _instantiate(key, value)
        return {name: _nested(f"{key}.{name}", entry) for name, entry in value.items()}
    return [_nested(key, entry) for entry in value] if isinstance(value, list) else value


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:240]
