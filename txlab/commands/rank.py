"""One rank of a run, started by txlab.train.launch: `python -m txlab.commands.rank FOLDER`."""

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path

from txlab.core.errors import RequestError, RunError


def main(handed: Path) -> int:
    """Run the config in `handed`, and leave there what came of it."""
    rank = int(os.environ["RANK"])
    _end_with_parent()
    try:
        result = _train(handed)
    except BaseException as error:
        if os.environ.get("TXLAB_DEBUG") == "1":
            traceback.print_exception(error)
        _leave_failed(handed, rank, error)
        sys.stdout.flush()
        sys.stderr.flush()
        # Ending in order would wait for the other ranks, which wait for this one.
        os._exit(getattr(error, "exit_status", 1))
    from txlab.train.launch import leave

    leave(handed, rank, result=result, time=time.time())
    return 0


def _train(handed: Path) -> object:
    import torch

    from txlab.core import plugins
    from txlab.core.hydra import from_yaml
    from txlab.run import train
    from txlab.train.launch import CONFIG, MODULES

    plugins.load(json.loads((handed / MODULES).read_text(encoding="utf-8")))
    text = (handed / CONFIG).read_text(encoding="utf-8")
    result = train(from_yaml(text, "the config of the run", ours=True))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # destroyed straight after work, a group may abort
        torch.distributed.destroy_process_group()
    return result


def _leave_failed(handed: Path, rank: int, error: BaseException) -> None:
    from txlab.train.launch import leave

    known = isinstance(error, (RequestError, RunError))
    line = " ".join(str(error).split())
    said = line if known else f"{type(error).__name__}: {line} (TXLAB_DEBUG=1 shows where)"
    status = getattr(error, "exit_status", 1)
    with contextlib.suppress(OSError):
        leave(handed, rank, said=said, known=known, status=status, time=time.time())


def _end_with_parent() -> None:
    """No rank outlives the process that watches it."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
