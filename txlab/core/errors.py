"""The two ways a command can fail, each with its exit status (see the README, "Exit status")."""

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
        print(f"txlab: error: {line}", file=sys.stderr)
    else:
        name = type(error).__name__
        print(f"txlab: {name}: {line} (TXLAB_DEBUG=1 shows where)", file=sys.stderr)
    return int(getattr(error, "exit_status", 1))
