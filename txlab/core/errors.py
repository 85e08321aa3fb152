"""The two ways a command can fail, each with its exit status (see the README, "Exit status")."""

import errno
import os
import sys
import traceback


class RequestError(Exception):
    """The request was wrong (exit status 2): says what, where and the way out, in one line."""

    exit_status = 2


class RunError(Exception):
    """The request was right, but the run failed (exit status 1): a full disk, a dead rank."""

    exit_status = 1


def report(error: Exception) -> int:
    """Say in one line what went wrong (with the traceback under TXLAB_DEBUG=1); its exit status."""
    if os.environ.get("TXLAB_DEBUG") == "1":
        traceback.print_exception(error)
    line = " ".join(str(error).split())
    if isinstance(error, (RequestError, RunError)):
        said = f"error: {line}"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        what = error.filename or "a file of the run"
        said = f"error: {what}: {error.strerror}: make room; a run goes on with resume=auto."
    elif isinstance(error, OSError) and error.filename and error.strerror:
        said = f"error: {error.filename}: {error.strerror}."
    elif isinstance(error, MemoryError) or "allocate memory" in line or "out of memory" in line:
        said = (
            f"error: out of memory ({line[:160]}): make the model, model.context or "
            "data.micro_batch_size smaller."
        )
    else:
        said = f"{type(error).__name__}: {line} (TXLAB_DEBUG=1 shows where)"
    print(f"txlab: {said}", file=sys.stderr)
    return int(getattr(error, "exit_status", 1))
