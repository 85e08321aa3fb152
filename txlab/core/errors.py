"""The two ways a command can fail, each with its exit status (see the README, "Exit status")."""


class RequestError(Exception):
    """The request was wrong (exit status 2): says what, where and the way out, in one line."""

    exit_status = 2


class RunError(Exception):
    """The request was right, but the run failed (exit status 1): a full disk, a dead rank."""

    exit_status = 1
