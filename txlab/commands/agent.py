"""Run the arms of a W&B sweep file here, one after the other, without W&B's server.

    python -m txlab agent sweep.yaml
    python -m txlab agent sweep.yaml count=20 out=runs/lr

Arms are proposed by W&B's own package and started by the commands that `wandb agent` would build.
Several agents may share an `out`. One that is given again goes on: arms that are done are kept,
others go on from their last checkpoint, and then new ones are proposed.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlab.core import agents
from txlab.core.agents import Trial
from txlab.core.arguments import parse
from txlab.core.errors import RequestError, report
from txlab.core.hydra import arms, sweep, sweep_files
from txlab.core.signals import answered

FLAPPING = 5
"""So many failures in a row are the file's fault."""


@dataclass
class Arguments:
    """What the verb takes beside the file."""

    out: str | None = None
    """Folder of the sweep, new or to be gone on with; null: a new one under runs/."""
    count: int | None = None
    """Most arms to start now; null: as many as the file's run_cap or its grid has."""
    seed: int = 0
    """Seed of what random and bayes propose."""


def main(words: Sequence[str]) -> int:
    """Run arms until none is left; the highest exit status among them."""
    from txlab.core.hydra.folders import sweep_folder

    arguments, rest = parse(Arguments, words, rest=True)
    if len(rest) != 1 or "=" in rest[0]:
        raise RequestError("agent takes one sweep file, such as `python -m txlab sweep` writes.")
    file = Path(rest[0]).expanduser()
    if not file.is_file():
        raise RequestError(f"{file}: there is no such file.")
    described = agents.read(file)
    if described["method"] != "grid" and not (arguments.count or described.get("run_cap")):
        raise RequestError(
            f"{file}: method {described['method']} has no end of its own: give count=N, or a "
            "run_cap in the file."
        )
    agent = Agent(described, Path(sweep_folder(arguments.out)), arguments.seed)
    agent.run(arguments.count)
    metric = described.get("metric", {})
    begun = sweep.Begun(agent.out, metric.get("name", "val/loss"), metric.get("goal") == "maximize")
    status = sweep.conclude(begun)
    return arms.PREEMPTED if agent.stopped else status


class Agent:
    """One worker on the arms in a folder."""

    def __init__(self, described: dict[str, Any], out: Path, seed: int) -> None:
        self.described = described
        self.out = out
        self.seed = seed
        self.metric = described.get("metric", {}).get("name", "val/loss")
        self.stopped = False
        self._left: list[dict[str, Any]] = []
        self._child: subprocess.Popen[str] | None = None

    def run(self, count: int | None) -> None:
        """Arms that were cut short first, then new ones: `count` at most."""
        started, failures = 0, 0
        left = [
            outcome["values"] for _, outcome in self._arms() if outcome["status"] not in (0, None)
        ]
        with answered((signal.SIGINT, signal.SIGTERM), self._stop):
            while not self.stopped and (count is None or started < count):
                values = left.pop(0) if left else self._next()
                if values is None:
                    break
                status = self._arm(values)
                started += status is not None
                failures = failures + 1 if status else 0
                if failures == FLAPPING:
                    print(
                        f"txlab: {FLAPPING} arms in a row failed: no more are started.",
                        file=sys.stderr,
                    )
                    break

    def trials(self) -> list[Trial]:
        """What is known of all arms, by folder."""
        found = []
        for folder, outcome in self._arms():
            state = {None: "running", 0: "finished"}.get(outcome["status"], "failed")
            found.append(Trial(outcome["values"], state, self._curve(folder)))
        known = [trial.values for trial in found]
        return found + [Trial(values, "running") for values in self._left if values not in known]

    def _curve(self, folder: Path) -> list[float]:
        points = sweep_files.curve(folder / sweep_files.METRICS, self.metric)
        return [value for _, value in points]

    def _arms(self) -> list[tuple[Path, arms.Outcome]]:
        if not self.out.is_dir():
            return []
        return [
            (folder, outcome) for folder, outcome in arms.ended(self.out) if "values" in outcome
        ]

    def _next(self) -> dict[str, Any] | None:
        trials = self.trials()
        if len(trials) >= self.described.get("run_cap", float("inf")):
            return None
        return agents.propose(self.described, trials, self.seed)

    def _arm(self, values: dict[str, Any]) -> int | None:
        """Run one arm to its end; its exit status, None where nothing was to be done."""
        from txlab.core.hydra import compose

        line = agents.command(self.described["command"], values)
        words = agents.overrides(line)
        config, problem = None, None
        try:
            config = compose(words)
            key = arms.identity(config)
        except RequestError as error:
            problem, key = error, arms.fingerprint(" ".join(words))
        folder = arms.claimed(self.out, key, len(self._arms()), words, values=values)
        with arms.held(folder) as mine:
            if not mine or (arms.read(folder) or {}).get("status") == 0:
                print(
                    f"run {folder.name} is {'done already' if mine else 'in work'}: left as it is"
                )
                self._left.append(values)
                return None
            arms.record(folder, key, words, values=values)
            print(
                f"run {folder.name}: {' '.join(f'{k}={v}' for k, v in values.items())}", flush=True
            )
            if problem is not None:
                status, result = report(problem), str(problem)
            else:
                status, result = self._started(
                    [*line, *self._places(config, folder, values)], folder
                )
            arms.record(folder, key, words, status, result, values=values)
        return status

    def _places(self, config: Any, folder: Path, values: dict[str, Any]) -> list[str]:
        """Words that tell an arm where it belongs."""
        from txlab.core.hydra.text import quoted
        from txlab.train.loggers import WANDB

        found = [f"run_dir={folder}", "resume=auto"]
        name = " ".join([folder.name, *(f"{key}={value}" for key, value in values.items())])
        for key, entry in (config.logger or {}).items():
            if str(entry.get("_target_")).endswith(f".{WANDB}"):
                found.append(f"++logger.{key}.group={quoted(self.out.name)}")
                found.append(f"++logger.{key}.name={quoted(name)}")
        return found

    def _started(self, line: list[str], folder: Path) -> tuple[int, dict[str, Any] | str]:
        """(exit status, results or the last line that the process said)."""
        here = os.path.dirname(sys.executable)
        path = os.pathsep.join([here, os.environ.get("PATH", "")])
        said: list[str] = []
        self._child = subprocess.Popen(
            line, env=os.environ | {"PATH": path}, stderr=subprocess.PIPE, text=True
        )
        thread = threading.Thread(target=_pass_on, args=(self._child, said), daemon=True)
        thread.start()
        ended_early = self._watch(folder)
        status = self._child.wait()
        thread.join()
        self._child = None
        if ended_early and status == arms.PREEMPTED:
            points = self._curve(folder)
            return 0, {self.metric: points[-1], "ended_early": True}
        if status == 0:
            return 0, json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        last = said[-1] if said else f"it ended with status {status}"
        return (status if status > 0 else 1), last.removeprefix("txlab: error: ")

    def _watch(self, folder: Path) -> bool:
        """Wait for the end of the arm; whether Hyperband has asked for it."""
        assert self._child is not None
        early, seen = False, 0
        while self._child.poll() is None:
            time.sleep(0.2)
            points = self._curve(folder)
            if early or "early_terminate" not in self.described or len(points) == seen:
                continue
            seen = len(points)
            place = [arm for arm, _ in self._arms()].index(folder)
            if agents.is_to_stop(self.described, self.trials(), place):
                print(f"run {folder.name} is weak: early_terminate ends it", flush=True)
                self._child.send_signal(signal.SIGTERM)
                early = True
        return early

    def _stop(self, number: int, frame: Any) -> None:
        """Asked to stop, the arm saves itself and no other is started."""
        self.stopped = True
        if number == signal.SIGTERM and self._child is not None:
            self._child.send_signal(number)  # Ctrl-C reaches it by itself


def _pass_on(process: "subprocess.Popen[str]", said: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        print(line, end="", file=sys.stderr, flush=True)
        if line.strip():
            said.append(line.strip())
