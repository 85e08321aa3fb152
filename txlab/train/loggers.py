"""Other people's loggers: built late, guarded, and never a reason for a run to stop."""

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from lightning.pytorch.loggers import Logger

from txlab.core.errors import RequestError
from txlab.train.tracking import Tracker

WANDB = "WandbLogger"
ID_FILE = "wandb_id.txt"
NO_KEY = "no API key"


class Guarded(Logger):
    """Passes everything on to `inner`; after its first failure it is left out, with one line."""

    def __init__(self, name: str, inner: Logger, say: Callable[[str], None]) -> None:
        super().__init__()
        self.inner: Logger | None = inner
        self._label = name
        self._is_wandb = type(inner).__name__ == WANDB
        self._name = inner.name
        self._say = say

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def version(self) -> int | str | None:
        return self._try(lambda inner: inner.version)

    @property
    def experiment(self) -> Any:
        """The inner logger's own object (a W&B run, say); None once it has failed."""
        return self._try(lambda inner: inner.experiment)  # pyright: ignore[reportAttributeAccessIssue]

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._try(lambda inner: inner.log_metrics(dict(metrics), step))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self._try(lambda inner: inner.log_hyperparams(params, *args, **kwargs))

    def tell(self, call: Callable[[Tracker], Any]) -> None:
        """`call` with the inner logger, where it is a tracker of ours."""
        self._try(lambda inner: call(inner) if isinstance(inner, Tracker) else None)

    def save(self) -> None:
        self._try(lambda inner: inner.save())

    def finalize(self, status: str) -> None:
        self._try(lambda inner: inner.finalize(status))
        if self._is_wandb:  # else the next run of this process would be logged into this one
            self._try(lambda inner: _finish(inner, status))

    def _try(self, call: Callable[[Logger], Any]) -> Any:
        if self.inner is None:
            return None
        try:
            return call(self.inner)
        except Exception as error:  # whatever a stranger's code raises: training matters more
            self.inner = None
            self._say(failure(self._label, error))
            return None


def failure(name: str, error: Exception) -> str:
    """One line for a logger that is left out from here on."""
    said = " ".join(str(error).split())[:160]
    return f"logger {name} failed and is left out ({type(error).__name__}: {said})."


def wandb_arguments(
    run_dir: Path, given: Mapping[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """What WandbLogger needs beside `given`: folder, a lasting id, offline where it must be."""
    file = run_dir / ID_FILE
    if not file.exists():
        # Within a W&B sweep the agent has chosen it.
        chosen = os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
        file.write_text(chosen, encoding="utf-8")
    arguments: dict[str, Any] = {
        "save_dir": str(run_dir),
        "name": run_dir.name,
        "id": file.read_text().strip(),
    }
    given = {key: value for key, value in given.items() if value is not None}
    arguments |= {"resume": "allow", **given}
    if "offline" not in given and "WANDB_MODE" not in os.environ and (why := offline_reason()):
        arguments["offline"] = True
        say(
            f"wandb: {why}, so the run is logged offline; "
            f"`wandb sync {run_dir}/wandb/offline-*` sends it later."
        )
    return arguments


def check_wandb(name: str, entry: Any) -> None:
    """RequestError where a run is to be logged online and W&B would not know by whom."""
    online = _is_wandb(entry) and entry.get("offline") is False
    if online and "WANDB_MODE" not in os.environ and offline_reason() == NO_KEY:
        raise RequestError(
            f"logger.{name}.offline=false: there is no API key of W&B's: set WANDB_API_KEY or run "
            "`wandb login`, or leave it out: then the run is logged offline until there is one."
        )


def _finish(wandb: Any, status: str) -> None:
    wandb.experiment.finish(int(status != "success"))


def tracked(
    logger: dict[str, Any] | None,
    *,
    job_type: str,
    group: str | None = None,
    name: str | None = None,
) -> dict[str, Any] | None:
    """`logger` with what a W&B run is found by there; what is given stays."""
    said = {"job_type": job_type, "group": group, "name": name}
    known = {key: value for key, value in said.items() if value is not None}
    return logger and {key: _completed(entry, known) for key, entry in logger.items()}


def _completed(entry: Any, known: Mapping[str, str]) -> Any:
    if not _is_wandb(entry):
        return entry
    return {**entry, **{key: v for key, v in known.items() if entry.get(key) is None}}


def _is_wandb(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("_target_")).endswith(f".{WANDB}")


def offline_reason() -> str | None:
    """Why W&B cannot be reached now; None where it can. Never waits longer than two seconds."""
    url = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    host = url.hostname or "api.wandb.ai"
    if not (os.environ.get("WANDB_API_KEY") or _in_netrc(host)):
        return NO_KEY
    try:
        socket.create_connection((host, url.port or 443), timeout=2).close()
    except OSError:
        return f"no connection to {host}"
    return None


def _in_netrc(host: str) -> bool:
    import netrc

    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
