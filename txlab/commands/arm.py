"""One arm of a sweep, in whatever process a launcher runs it: in its folder, once, to its end."""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from txlab.core import plugins
from txlab.core.errors import RequestError, report
from txlab.core.hydra import arms, registry, sweep_files, typed

if TYPE_CHECKING:
    from txlab.schema import Config

main_process: int | None = None
"""Id of the process in which the sweep was started, as far as this process knows."""
_stopped = False


class Stopped(BaseException):
    """The sweep was asked to stop; no Exception, which Hydra would keep until the last arm."""


class Refused(BaseException):
    """The first arm was refused for what is wrong with the whole sweep, which ends with it."""

    def __init__(self, why: Exception) -> None:
        super().__init__(why)
        self.why = why


def run(tree: DictConfig) -> float | None:
    """Run the arm, or leave it as it is where it is done; the figure that sweepers ask for."""
    if _stopped:
        return None
    _listen()
    context = HydraConfig.get()
    words = list(context.overrides.task)
    registry.ready()  # in the process of a launcher nothing is known yet
    config, problem = None, None
    try:
        plugins.load(OmegaConf.select(tree, "plugins") or ())
        config = typed(tree)
    except RequestError as error:
        problem = error
    if _follows():
        if config is not None and _told_to_run():
            from txlab.run import train

            train(config)  # on rank 0's config, and in its folder
        return None
    key = arms.identity(config) if config else arms.identity_of_refused(tree)
    if context.sweep.subdir == ".":
        folder = arms.claimed(Path(context.sweep.dir), key, context.job.num, words)
    else:
        folder = arms.claimed_as_named(Path(context.runtime.output_dir), key, words)
    with arms.held(folder) as mine:
        before = arms.read(folder) or {}
        is_done = before.get("status") == 0 and config is not None
        _told_to_run(mine and not is_done and config is not None)
        if not mine:
            print(f"run {folder.name} is in work in another process: left to it", flush=True)
            return None
        if is_done and config is not None:
            print(f"run {folder.name} is done already: kept", flush=True)
            return _figure(before, config)
        arms.record(folder, key, words)
        status, result, error = 0, {}, None
        try:
            if problem is not None:
                raise problem
            assert config is not None
            result = _train(config, folder)
            figure = _figure({"result": result}, config)
        except Exception as failure:
            if _is_of_the_sweep(failure, folder):
                shutil.rmtree(folder)
                raise Refused(failure) from failure
            figure, error = None, failure
            status, result = report(failure), " ".join(str(failure).split())
        arms.record(folder, key, words, status, result or {})
    if status == arms.PREEMPTED:
        _stop()
        if os.getpid() == main_process:
            raise Stopped from error
        if (told := _SaveFirst.told) is not None:
            told.requeue(told.number, None)
    return figure


def _train(config: "Config", folder: Path) -> dict[str, Any]:
    from txlab.loading import inherited
    from txlab.run import train

    context = HydraConfig.get()
    config.run_dir = str(folder)
    # A new arm finds nothing there; one that was cut short, by whomever, goes on.
    config.resume = config.resume or "auto"
    words = list(context.overrides.task)
    config, changes = inherited(config, words)
    for change in changes:
        print(f"surgery     {change}")
    recipe = context.runtime.choices.get("recipe")
    config.logger = tracked(config.logger, recipe or "train", folder, words)
    return train(config)


def tracked(
    logger: dict[str, Any] | None, job_type: str, folder: Path, words: Sequence[str]
) -> dict[str, Any] | None:
    """Loggers that know the sweep, and what tells this run of it from the others."""
    from txlab.train.loggers import tracked as said

    fixed = set(HydraConfig.get().job.config.override_dirname.exclude_keys)
    varied = [word for word in words if word.partition("=")[0].lstrip("+") not in fixed]
    name = " ".join([folder.name, *varied])
    return said(logger, job_type=job_type, group=folder.parent.name, name=name)


def _figure(outcome: arms.Outcome, config: "Config") -> float | None:
    """The run's `sweep.metric`; RequestError where it was asked for and is not there."""
    results = sweep_files.results_of(outcome)
    metric, value = config.sweep.metric, results.get(config.sweep.metric)
    if isinstance(value, (int, float)):
        return float(value)
    asked = "BasicSweeper" not in str(HydraConfig.get().sweeper._target_)
    if asked or metric != type(config.sweep)().metric:
        there = [name for name, entry in results.items() if isinstance(entry, (int, float))]
        raise RequestError(
            f"sweep.metric={metric} is no figure of this run; it has {', '.join(there)}."
        )
    return None


def _is_of_the_sweep(failure: Exception, folder: Path) -> bool:
    """Whether the first arm of a new sweep, in its own process, has no figure to be compared by."""
    from txlab.train.figures import UnknownFigure

    asked = isinstance(failure, UnknownFigure) and failure.key == "sweep.metric"
    alone = len(arms.found(folder.parent)) == 1 and os.getpid() == main_process
    return asked and alone and {file.name for file in folder.iterdir()} <= {arms.OUTCOME, arms.HELD}


def _follows() -> bool:
    """Whether this process is a rank of an arm whose rank 0 is another process."""
    from txlab.train import ranks

    submitit = sys.modules.get("submitit")
    if submitit is not None and os.environ.get("SUBMITIT_EXECUTOR") == "local":
        here = submitit.JobEnvironment()
        if here.num_tasks > 1:  # as torchrun would say it
            submitit.helpers.TorchDistributedEnvironment().export(False, overwrite=True)
            os.environ["NODE_RANK"] = os.environ["GROUP_RANK"] = str(here.node)
    return ranks.started() and not ranks.leads()


def _told_to_run(runs: bool = False) -> bool:
    """What rank 0 has made of the arm, on every rank: the others must not wait for one that is
    done."""
    from txlab.train import ranks

    return ranks.told(lambda: str(runs), "whether to run") == str(True)


def _listen() -> None:
    """A launcher's process that is asked to stop starts no further arm; a SLURM job that is to come
    back into the queue saves first."""
    if os.getpid() == main_process or threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGTERM, _on_stop)
    if "SUBMITIT_EXECUTOR" in os.environ:
        number = getattr(signal, f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}")
        requeue = signal.getsignal(number)
        if callable(requeue) and not isinstance(requeue, _SaveFirst):
            signal.signal(number, _SaveFirst(requeue))


def _on_stop(number: int, frame: Any) -> None:
    _stop()


class _SaveFirst:
    """Puts submitit's own answer to a preemption off until the arm has saved itself."""

    told: "_SaveFirst | None" = None

    def __init__(self, requeue: Callable[[int, Any], Any]) -> None:
        self.requeue = requeue
        self.number = 0

    def __call__(self, number: int, frame: Any) -> None:
        self.number = number
        if signal.getsignal(signal.SIGTERM) is _on_stop:  # nothing trains: nothing to save
            self.requeue(number, frame)
        else:
            _SaveFirst.told = self
            os.kill(os.getpid(), signal.SIGTERM)


def _stop() -> None:
    global _stopped
    _stopped = True
