"""What a sweep is asked for, checked before anything is composed or started."""

import importlib.util
import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, RangeSweep

from txlab.core.errors import RequestError
from txlab.core.hydra import arms, overrides, sweep_spaces
from txlab.core.hydra.errors import translated
from txlab.core.nearest import did_you_mean

LAUNCHER, SWEEPER = "hydra/launcher", "hydra/sweeper"
EXTRAS = {
    LAUNCHER: {
        "joblib": ("hydra_plugins.hydra_joblib_launcher", "sweeps"),
        "submitit_local": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
        "submitit_slurm": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
        "slurm": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
    },
    SWEEPER: {"optuna": ("hydra_plugins.hydra_optuna_sweeper", "optuna")},
}
"""Launchers and sweepers of packages that an extra of txlab installs: module and extra."""
MOST = 1000
"""Runs of one sweep: Hydra composes all of them before the first one starts."""


OPTUNA = {
    "hydra.sweeper.direction": "${sweep.goal}",
    # One look at the results before each trial; more run at once under a launcher that can.
    "hydra.sweeper.n_jobs": "1",
    # A trial that fails is told as such, and the search goes on.
    "hydra.sweeper.max_failure_rate": "1.0",
    # So that a sweep that goes on proposes what it proposed before, and finds those runs done.
    "hydra.sweeper.sampler.seed": "0",
}
"""What txlab wants of Optuna's sweeper where the command line says nothing else."""


def settings(words: Sequence[str]) -> list[str]:
    """Words for Hydra beside those of the command line: how a sweep of txlab is done."""
    parsed = _parsed(words)
    # Hydra hands this list on to every launcher: it says which words tell the arms apart.
    single = (str(w.key_or_group) for w in parsed if not w.is_sweep_override())
    fixed = ",".join(key for key in single if not key.startswith("hydra"))
    added = [f"hydra.job.config.override_dirname.exclude_keys=[{fixed}]"]
    given = {word.key_or_group: _text(word) for word in parsed}
    if given.get(SWEEPER) == "optuna":
        seeded = given.get(f"{SWEEPER}/sampler") != "grid"
        added += [
            f"{key}={value}"
            for key, value in OPTUNA.items()
            if key not in given and (seeded or not key.endswith("seed"))
        ]
    return added


FIGURES = (
    *("step", "updates", "skipped", "tokens", "supervised", "parameters", "train/loss"),
    *("unigram_entropy", "gain", "tokens_per_s", "mfu", "peak_flops", "flops_per_token"),
    *("seconds", "peak_memory_mib"),
)
"""What every summary has, beside figures of its validation."""


def check(words: Sequence[str]) -> None:
    """RequestError where normalised words of `-m` ask for what cannot be swept."""
    parsed = _parsed(words)
    chosen = {word.key_or_group: _text(word) for word in parsed}
    for group, names in EXTRAS.items():
        _check_installed(group, chosen.get(group), names)
    searches = chosen.get(SWEEPER, "basic") != "basic"
    if chosen.get(SWEEPER) == "optuna":
        _import_quietly("optuna")
        if chosen.get("hydra.sweeper.storage", "null") not in ("null", "None"):
            raise RequestError(
                "hydra.sweeper.storage: studies are kept in memory; a sweep goes on with "
                "run_dir=SWEEP resume=auto, from what its runs have left."
            )
    runs = 1
    for word in parsed:
        if not word.is_sweep_override():
            continue
        if not word.is_discrete_sweep():
            if not searches:
                raise RequestError(
                    f"{word.input_line} is a range, in which somebody has to search: add "
                    f"{SWEEPER}=optuna, list values, or write a sweep file "
                    "(python -m txlab sweep ... method=random)."
                )
            if word.is_interval_sweep():
                sweep_spaces.interval(word)
        elif not searches:
            runs *= _count(word)
    if runs > MOST:
        raise RequestError(
            f"-m asks for {runs:,} runs, more than {MOST:,}: list fewer values, or search with "
            f"{SWEEPER}=optuna hydra.sweeper.n_trials=N."
        )
    if "sweep.metric" in chosen:
        _check_metric(chosen["sweep.metric"])
    _check_jobs(chosen)
    trials = chosen.get("hydra.sweeper.n_trials", "1")
    if trials.lstrip("-").isdigit() and int(trials) < 1:
        raise RequestError(f"hydra.sweeper.n_trials={trials}: expected at least 1.")
    _check_folder(chosen)


def check_single(words: Sequence[str]) -> None:
    """RequestError where words of one run are meant for a sweep."""
    parsed = _parsed(words)
    for word in parsed:
        if word.key_or_group in (LAUNCHER, SWEEPER):
            raise RequestError(f"{word.input_line} is for sweeps: add -m.")
        if word.is_sweep_override() and "(" in str(word.input_line):
            raise RequestError(f"{word.input_line} stands for several values: add -m to run them.")
    folder = next((_text(word) for word in parsed if word.key_or_group == "run_dir"), "null")
    if folder != "null" and arms.found(Path(folder)):
        raise RequestError(
            f"run_dir={folder} is the folder of a sweep: add -m to go on with it, or name the "
            "folder of one of its runs."
        )


def _parsed(words: Sequence[str]) -> list[Override]:
    with translated():
        return OverridesParser.create().parse_overrides(list(overrides.split_flags(words)[1]))


def _text(word: Override) -> str:
    value = word.value() if not word.is_sweep_override() else word.input_line
    return "null" if value is None else str(value)


def _check_metric(metric: str) -> None:
    """RequestError where no run can have the figure; one below val/ is for the runs to know."""
    if not metric.startswith("val/") and metric not in FIGURES:
        hint = did_you_mean(metric, ["val/loss", *FIGURES], n=1, cutoff=0.6)
        raise RequestError(
            f"sweep.metric={metric}: no run's summary has it.{hint} Expected val/NAME or one of "
            f"{', '.join(FIGURES)}."
        )


def _check_installed(group: str, name: str | None, names: dict[str, tuple[str, str]]) -> None:
    if name not in names:
        return
    module, extra = names[name]
    try:
        there = importlib.util.find_spec(module) is not None
    except ImportError:  # no plugin of Hydra at all
        there = False
    if not there:
        raise RequestError(
            f"{group}={name} needs a package that is not installed: pip install 'txlab[{extra}]'."
        )
    if name in ("slurm", "submitit_slurm") and shutil.which("srun") is None:
        raise RequestError(
            f"{group}={name}: there is no srun here: start it on a machine of the cluster, or try "
            "it out with submitit_local."
        )


def _count(word: Override) -> int:
    value = word.value()
    if isinstance(value, Glob):  # what it stands for is known once Hydra looks
        return 1
    if isinstance(value, RangeSweep):
        assert value.start is not None
        assert value.stop is not None
        return max(int((value.stop - value.start) / (value.step or 1)), 1)
    return sum(1 for _ in word.sweep_string_iterator())


def _check_jobs(chosen: dict[str, str]) -> None:
    given = chosen.get("hydra.launcher.n_jobs")
    cores = os.cpu_count() or 1
    if given is None or chosen.get(LAUNCHER) != "joblib":
        return
    if not given.lstrip("-").isdigit() or int(given) == 0 or int(given) < -1:
        raise RequestError(f"hydra.launcher.n_jobs={given}: expected a whole number, or -1.")
    if int(given) > cores:
        raise RequestError(
            f"hydra.launcher.n_jobs={given}: this machine has {cores} cores, so runs would only "
            f"wait for each other; give {cores} or less."
        )


def _check_folder(chosen: dict[str, str]) -> None:
    """A sweep's folder is new, or one that is to be gone on with."""
    run_dir, resume = chosen.get("run_dir", "null"), chosen.get("resume", "null")
    if not run_dir:
        raise RequestError("run_dir= is empty (a shell variable that is not set?): name a folder.")
    if run_dir == "null":
        if resume == "auto":
            raise RequestError("resume=auto needs run_dir=FOLDER, that of the sweep, to look in.")
        return
    folder = Path(run_dir).expanduser()
    if (folder / "checkpoints").exists() or (folder / "metrics.csv").exists():
        raise RequestError(
            f"run_dir={run_dir} holds a run, not a sweep: name another folder, or leave -m away."
        )
    if resume != "auto" and arms.found(folder):
        raise RequestError(
            f"run_dir={run_dir} holds a sweep already: resume=auto goes on with it (runs that are "
            "done are kept), another run_dir starts anew."
        )


def _import_quietly(module: str) -> None:
    """Import a package whose own import warns of its own age, which no user can change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(module)
