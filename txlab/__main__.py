"""`python -m txlab [verb] [key=value ...]`: finds the verb and lets Hydra compose a training run.

A verb is a module of txlab/commands with `main(words) -> int | None`; no verb means train.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from txlab.core.errors import RequestError, report

_UNLISTED = ("arm", "overview", "rank", "sweeping", "train")


def main() -> int:
    """Run the command line; returns the exit status (README, "Exit status")."""
    # Read when torch is imported, by ranks, too. Its C++ warnings advise on what txlab has chosen
    # (`find_unused_parameters`, say); its errors come through.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        return dispatch(sys.argv[1:])
    except KeyboardInterrupt:
        print("txlab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return report(error)


def dispatch(words: Sequence[str]) -> int:
    """Run a verb, training, or the overview where there is no word at all."""
    if not words:
        from txlab.commands.overview import overview

        overview(verbs())
        return 0
    first, rest = words[0], words[1:]
    if first.startswith("-") or "=" in first or first == "train":
        from txlab.commands.train import main as train

        return train(rest if first == "train" else words)
    if first not in verbs():
        from txlab.core.slot import unknown

        raise RequestError(unknown(f"verb {first!r}", first, {"train": "", **verbs()}))
    command = import_module(f"txlab.commands.{first}")
    if any(word in ("-h", "--help") for word in rest):
        print((command.__doc__ or "").strip())
        return 0
    return command.main(list(rest)) or 0


def verbs() -> dict[str, Path]:
    """Every verb with its file."""
    files = (Path(__file__).parent / "commands").glob("[a-z]*.py")
    return {file.stem: file for file in sorted(files) if file.stem not in _UNLISTED}


if __name__ == "__main__":
    sys.exit(main())
