"""Weights & Biases: one run of theirs for one run of ours, however often it is resumed."""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch import loggers
from lightning.pytorch.utilities import rank_zero_only

from txlab.train.tracking import wandb_history
from txlab.train.tracking.tracker import Tracker

if TYPE_CHECKING:
    from wandb import Run

LOG_MODEL = (False, True, "all")
STAGED = "staged"
"""Folder of the checkpoints that wait for their upload, beside W&B's own."""


class WandbLogger(Tracker, loggers.WandbLogger):
    """Lightning's logger with our steps: W&B's step is the row's, so none can be there twice.

    A row is sent when the next one begins, with the tables that came in between. Offline, rows that
    a resumed run goes back behind are cut from the files of the earlier processes; a server keeps
    what it has, and only later rows are sent to it.
    """

    def __init__(
        self,
        *,
        project: str | None = "txlab",
        entity: str | None = None,
        name: str | None = None,
        group: str | None = None,
        job_type: str | None = None,
        tags: Sequence[str] | None = None,
        notes: str | None = None,
        id: str | None = None,
        save_dir: str = ".",
        offline: bool | None = False,
        log_model: bool | str | None = False,
        settings: Mapping[str, Any] | None = None,
        resume: str | None = "allow",
    ) -> None:
        self.check(log_model=log_model)
        super().__init__(
            project=project,
            entity=entity,
            name=name,
            group=group,
            job_type=job_type,
            tags=list(tags or ()),
            notes=notes,
            id=id,
            save_dir=save_dir,
            offline=bool(offline),
            resume=resume,
        )
        self._wandb_init.pop("anonymous", None)  # given up by wandb, which warns of it
        self.log_model = log_model or False
        self.settings = dict(settings or {})
        self._row: dict[str, Any] = {}
        self._last_step: int | None = None
        self._stored_step = -1

    @staticmethod
    def check(*, log_model: Any = False, **others: Any) -> None:
        """ValueError where a value would be refused only by a run that has begun."""
        if log_model not in (None, *LOG_MODEL):
            raise ValueError(f"log_model={log_model}: expected false, true (the last one) or all")

    @property
    @rank_zero_experiment
    def experiment(self) -> "Run":  # pyright: ignore[reportIncompatibleMethodOverride]
        """W&B's run; started when it is first asked for, offline where no server answers."""
        if self._experiment is None:
            try:
                self._experiment = self._start(
                    "offline" if self._offline else os.environ.get("WANDB_MODE")
                )
            except Exception as error:
                if self._offline or os.environ.get("WANDB_MODE", "online") != "online":
                    raise
                self.say(
                    f"wandb: {type(error).__name__}, no run could be opened on the server; it is "
                    f"logged offline: `wandb sync {self._save_dir}/wandb/offline-*` sends it later."
                )
                import wandb

                wandb.teardown()  # its service still has the run, and would not open it again
                self._offline = True
                self._experiment = self._start("offline")
        return self._experiment

    def _start(self, mode: Any) -> "Run":
        import wandb

        known = wandb.Settings.model_fields
        ours = {
            # Training must not wait for a server that does not answer, nor at its end.
            "init_timeout": 60.0,
            "finish_timeout": 120.0,
            # What is not in the file when the process is killed, is lost to `wandb sync`.
            "x_transaction_log_flush_interval": 2.0,
            "silent": mode == "offline",
        }
        settings = {key: value for key, value in ours.items() if key in known} | self.settings
        _other_second(Path(str(self._wandb_init["dir"])), str(self._wandb_init["id"]))
        run = wandb.init(
            **self._wandb_init,
            mode=mode,
            reinit="finish_previous",  # else it would be logged into a run that is still open
            settings=wandb.Settings(**settings),
        )
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        return run

    @property
    def last_step(self) -> int:
        if self._last_step is None:
            run = self.experiment
            self._last_step = max(run.starting_step - 1, 0)
            if run.offline:
                folder = Path(self._save_dir or ".")
                self._last_step = wandb_history.go_back(folder, run.id, self.resumed_step)
        return self._last_step

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """A row of the log; what has no `step` of its own joins the row that was logged last."""
        if "step" in metrics:
            self._send()
        self._row |= metrics

    def _send(self) -> None:
        row, self._row = self._row, {}
        step = row.get("step")
        if row and (step is None or step > self.last_step):
            self.experiment.log(row, step=step, commit=True)

    @rank_zero_only
    def log_table(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, key: str, columns: Sequence[str], data: Sequence[Sequence[Any]], **others: Any
    ) -> None:
        import wandb

        self._row[key] = wandb.Table(columns=list(columns), data=[list(row) for row in data])

    def log_picture(self, path: Path) -> None:
        import wandb

        self._row[path.stem] = wandb.Image(str(path))

    def log_file(self, path: Path) -> None:
        run = self.experiment
        if run.disabled:
            return
        there = Path(run.dir) / path.name  # a link to the run folder would be a warning
        shutil.copyfile(path, there)
        run.save(str(there), base_path=run.dir, policy="now")

    def log_checkpoint(self, path: Path, step: int, *, last: bool) -> None:
        if step == self._stored_step or not (self.log_model == "all" or (self.log_model and last)):
            return
        self._stored_step = step
        import wandb

        run = self.experiment
        artifact = wandb.Artifact(f"checkpoint-{run.id}", type="model", metadata={"step": step})
        # The run may delete its checkpoint before it is sent, so that its files get a second name.
        staged = Path(self._save_dir or ".") / "wandb" / STAGED / path.name
        for file in sorted(path.rglob("*")):
            if file.is_file():
                name = file.relative_to(path)
                artifact.add_file(
                    str(_second_name(file, staged / name)), str(name), policy="immutable"
                )
        run.log_artifact(artifact, aliases=["latest", path.name])

    def log_summary(self, figures: Mapping[str, Any]) -> None:
        self._send()
        self.experiment.summary.update(dict(figures))

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._experiment is not None:
            self._send()


def _other_second(folder: Path, run_id: str) -> None:
    """Wait until no process of the run has begun in this second: folders are named by it."""
    while any(folder.glob(f"wandb/*run-{time.strftime('%Y%m%d_%H%M%S')}-{run_id}")):
        time.sleep(0.05)


def _second_name(file: Path, there: Path) -> Path:
    """`there`, with the content of `file`; without a copy where the file system can."""
    there.parent.mkdir(parents=True, exist_ok=True)
    there.unlink(missing_ok=True)
    try:
        os.link(file, there)
    except OSError:
        shutil.copyfile(file, there)
    return there
