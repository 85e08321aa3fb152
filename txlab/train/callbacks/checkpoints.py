"""Saves at intervals, at the end and when the process is asked to stop."""

import signal
import threading
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from txlab.train import checkpoint, requeue
from txlab.train.checkpoint import Keep, Score
from txlab.train.history import Row
from txlab.train.requeue import Preempted
from txlab.train.resume import IDENTITY
from txlab.train.state import random_state
from txlab.train.strategy.shards import all_whole
from txlab.train.weights import adapter_tensors, named_tensors


class Checkpoints(Callback):
    """Writes `RUN/checkpoints/step-NNNNNN` every `save_every` steps and at the end.

    Every `keep.every` steps, too, and with `keep.best` after a validation whose figure `best` is
    among the best so far.

    SIGTERM and the first Ctrl-C finish the step, save and end the run; a second Ctrl-C ends it at
    once. SIGUSR1 does so too, and asks SLURM to run the job again.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        config: str,
        tokenizer: Any = None,
        facts: dict[str, Any] | None = None,
        save_every: int | None = None,
        keep: Keep = checkpoint.NEWEST,
        best: str = "val/loss",
        highest: bool = False,
        resumed_step: int = -1,
        origin: str | None = None,
    ) -> None:
        self.folder = run_dir / checkpoint.FOLDER
        self.config = config
        self.tokenizer = tokenizer
        self.facts = {key: value for key, value in (facts or {}).items() if key in IDENTITY}
        self.save_every = save_every
        self.keep = keep
        self.best = best
        self.highest = highest
        self._score: tuple[int, Score] | None = None
        self.saved_step = resumed_step
        self.origin = origin
        self._stop: str | None = None
        self._again = False
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero:
            checkpoint.clear_leftovers(self.folder, pl_module.counters.step)
        if threading.current_thread() is threading.main_thread():
            for number in requeue.listened_to():
                self._handlers[number] = signal.signal(number, self._on_signal)

    def on_row(self, trainer: Trainer, module: Any, row: Row) -> None:
        if self.best in row:
            self._score = (int(row["step"]), Score(self.best, row[self.best], self.highest))
        elif self.keep.best and self._is_due(row):
            module.given_up = (
                f"train.best={self.best}: there is no such figure; this run has {', '.join(row)}"
            )

    def _is_due(self, row: Row) -> bool:
        """Whether `row` would have the figure if there were one."""
        return "val/loss" in row or not self.best.startswith("val/")

    def _score_of(self, step: int) -> Score | None:
        return self._score[1] if self._score is not None and self._score[0] == step else None

    def on_step(self, trainer: Trainer, module: Any) -> None:
        # Read once: a signal that comes while ranks agree is for the next step, and is not lost.
        step, stop, again = module.counters.step, self._stop, self._again
        if trainer.world_size > 1:  # told between different steps, ranks would wait for each other
            told = trainer.strategy.reduce_boolean_decision(stop is not None, all=False)
            stop = (stop or "another rank") if told else None
            if told:
                again = trainer.strategy.reduce_boolean_decision(again, all=False)
        due = any(every and step % every == 0 for every in (self.save_every, self.keep.every))
        due = due or module.given_up is not None
        if stop is None and not due and not self._is_among_the_best(trainer, step):
            return
        self.save(trainer, module)
        if stop is not None:
            again = again and trainer.is_global_zero
            what = requeue.put_back() if again else "go on with resume=auto"
            raise Preempted(f"stopped by {stop} at step {step}, saved; {what}.")

    def _is_among_the_best(self, trainer: Trainer, step: int) -> bool:
        """The same on every rank: the first one knows what is saved."""
        score = self._score_of(step)
        if self.keep.best == 0 or score is None:
            return False
        found = trainer.is_global_zero and self.keep.wants(self.folder, score)
        if trainer.world_size == 1:
            return found
        return trainer.strategy.reduce_boolean_decision(found, all=False)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.save(trainer, pl_module)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    def save(self, trainer: Trainer, module: Any) -> None:
        """Save this step, unless it is saved already."""
        step = module.counters.step
        if step == self.saved_step:
            return
        module.watch.stop()
        generators = module.peers.gathered(random_state())
        state = {**module.state(), "random": generators, "data": self.facts}
        values = module.averaging.to_save()
        adapter = adapter_tensors(module.model, values)
        named_elsewhere = adapter is not None and self.origin is not None
        tensors = None if named_elsewhere else named_tensors(module.model, values)
        # Sharded ones are put together, which takes all ranks; the first one is left with them.
        tensors, adapter = (
            None if named is None else all_whole(named, keep=trainer.is_global_zero)
            for named in (tensors, adapter)
        )
        if trainer.is_global_zero:
            checkpoint.save(
                self.folder,
                step,
                tensors=tensors,
                adapter=adapter,
                origin=self.origin,
                state=state,
                config=self.config,
                save_tokenizer=None if self.tokenizer is None else self.tokenizer.save,
                keep=self.keep,
                score=self._score_of(step),
            )
        self.saved_step = step

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._stop is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stop = signal.Signals(number).name
        self._again = number == requeue.SOON
