"""Which code a run ran: `code.jsonl` in the run folder, one line for each process that trained.

What git has not stored stands beside it as `code-HASH.diff`, so that the state can be rebuilt.
"""

import hashlib
import json
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import txlab

FILE = "code.jsonl"
PACKAGES = ("torch", "lightning", "hydra-core", "omegaconf", "numpy")
PATIENCE = 10.0
"""Seconds that git may take for an answer."""
LIMIT = 10_000_000
"""Bytes of a diff; a longer one is no longer one of code."""


def record(run_dir: Path, step: int) -> list[Path]:
    """Append this process, which begins after `step`; the files that say what it runs.

    OSError where they cannot be written.
    """
    here, ours = Path.cwd(), Path(txlab.__file__).parent
    states, files = {}, [run_dir / FILE]
    for name, folder in (("working_directory", here), ("txlab", ours)):
        state, diff = repository(folder)
        if state is None or state in states.values():
            continue
        if diff:
            file = run_dir / f"code-{hashlib.sha256(diff).hexdigest()[:12]}.diff"
            file.write_bytes(diff)
            files.append(file)
            state["diff"] = file.name
        states[name] = state
    line = {
        "step": step,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": [sys.executable, *sys.argv],
        "host": platform.node(),
        "python": platform.python_version(),
        "txlab": txlab.__version__,
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "git": states,
    }
    with files[0].open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    return files


def repository(folder: Path) -> tuple[dict[str, Any] | None, bytes]:
    """(commit, branch and uncommitted changes of the repository that `folder` is in, the diff).

    None where it is in none, or where git knows nothing about what lies there.
    """
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None or not _git(folder, "ls-files", "."):
        return None, b""
    top = Path(root.decode().strip())
    changed = (_git(top, "status", "--porcelain") or b"").decode(errors="replace").splitlines()
    new = [line[3:] for line in changed if line.startswith("??")]
    diff = _git(top, "diff", "HEAD", "--binary") or b""
    state = {
        "root": str(top),
        "commit": _text(_git(top, "rev-parse", "HEAD")),
        "branch": _text(_git(top, "rev-parse", "--abbrev-ref", "HEAD")),
        "dirty": bool(changed),
        "untracked": new[:100],
    }
    return state, diff if len(diff) <= LIMIT else b""


def _git(folder: Path, *words: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(said: bytes | None) -> str | None:
    return said.decode().strip() if said else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
