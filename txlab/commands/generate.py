"""Continue texts with a trained model.

    python -m txlab generate ckpt=RUN prompt="Once upon a time, there was"
    python -m txlab generate ckpt=RUN prompts=FILE temperature=0 max_new_tokens=64

ckpt is a run folder (its newest complete checkpoint), a checkpoint or a Hugging Face directory.
FILE holds a prompt a line, or JSON lines with the key "prompt". Text is taken as it stands: no
quoting for Hydra is needed. chat=true asks each prompt through the model's chat template, and
prints the answers alone.
`python -m txlab generate` without arguments lists them all.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from txlab.core.arguments import parse, usage
from txlab.core.errors import RequestError
from txlab.models.sampling import Sampling

if TYPE_CHECKING:
    from txlab.data.tokenizer import Tokenizer


@dataclass
class Arguments(Sampling):
    """What the verb takes beside the fields of `Sampling`."""

    ckpt: str | None = None
    """Run folder, checkpoint or Hugging Face directory whose model answers."""
    prompt: str = ""
    """Text to continue; empty: a document from its beginning."""
    prompts: str | None = None
    """File of prompts: one a line, or JSON lines with the key "prompt"."""
    chat: bool = False
    """Take each prompt for a user's message, written by the tokenizer's chat template."""
    system: str | None = None
    """System message of the chat; null: what the template says without one."""
    compile: bool = False
    """Compile the step of a token: starts later (10 to 60 s), then decodes about twice as fast."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, mps."""


def main(words: Sequence[str]) -> int:
    """Generate, streaming a single answer and printing several ones in order."""
    if not words:
        for key, default, doc in usage(Arguments):
            print(f"{key:20s} {default:12s} {doc}")
        return 0
    known = [
        f"ckpt={w.partition('=')[2]}" if w.startswith("model.init_from=") else w for w in words
    ]
    arguments, _ = parse(Arguments, known)
    if not arguments.ckpt:
        raise RequestError(
            "generate needs a model: give ckpt=RUN, the folder of a run or checkpoint."
        )
    prompts = [arguments.prompt] if arguments.prompts is None else read_prompts(arguments.prompts)
    sampling = Sampling(**{f.name: getattr(arguments, f.name) for f in fields(Sampling)})
    if arguments.system is not None and not arguments.chat:
        raise RequestError("system=... is part of a chat: give chat=true as well.")
    answer(arguments, prompts, sampling)
    return 0


def answer(arguments: Arguments, prompts: Sequence[str], sampling: Sampling) -> None:
    """Load the model, continue every prompt and print the results."""
    from txlab.loading import load, move
    from txlab.models.text import generate_text

    ckpt, device = str(arguments.ckpt), arguments.device
    model = load(Path(ckpt).expanduser())
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise RequestError(f"{ckpt} holds no tokenizer, so its model cannot read a prompt.")
    move(model, device)
    asked, end_ids = list[str | list[int]](prompts), None
    if arguments.chat:
        asked, end_ids = chats(tokenizer, prompts, arguments.system)
        prompts = [""] * len(prompts)
    single = len(prompts) * sampling.n == 1
    waiting = [prompts[0]] if single else []

    def stream(row: int, text: str) -> None:
        # The prompt comes with the first text: a refused one prints nothing.
        print(waiting.pop() if waiting else "", end="")
        print(text, end="", flush=True)

    begin = time.perf_counter()
    answers = generate_text(
        model,
        tokenizer,
        asked,
        sampling,
        end_ids=end_ids,
        on_text=stream if single else None,
        compiled=arguments.compile,
    )
    seconds = time.perf_counter() - begin
    if single:
        print(waiting.pop() if waiting else "")
    else:
        for row, made in enumerate(answers):
            which = f"prompt {row // sampling.n + 1}" + (
                f", answer {row % sampling.n + 1}" if sampling.n > 1 else ""
            )
            print(f"--- {which} ({made.reason})\n{prompts[row // sampling.n]}{made.text}")
    tokens = sum(len(made.tokens) for made in answers)
    reasons = ", ".join(dict.fromkeys(made.reason for made in answers))
    print(
        f"[{tokens} tokens, {tokens / seconds:.0f} tokens/s, ended by: {reasons}]", file=sys.stderr
    )


def chats(
    tokenizer: "Tokenizer", prompts: Sequence[str], system: str | None
) -> tuple[list[str | list[int]], Sequence[int]]:
    """Ids of a chat for each prompt, up to where the answer begins, and those that end answers."""
    from txlab.data.chat.template import Template

    template = Template(tokenizer)
    first = [] if system is None else [{"role": "system", "content": system}]
    asked = [template.prompt([*first, {"role": "user", "content": text}]) for text in prompts]
    return list(asked), template.end_ids


def read_prompts(file: str) -> list[str]:
    """The prompts in a file; RequestError where there are none or a line cannot be read."""
    path = Path(file).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RequestError(f"prompts={file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(
            f"prompts={file}: byte {error.start} is no UTF-8: save the file as UTF-8."
        ) from error
    # Not splitlines: a JSON string may hold U+2028 and the like as they are.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise RequestError(f"prompts={file}: no prompt in it; expected one a line.")
    if path.suffix != ".jsonl":
        return [line for _, line in lines]
    found = []
    for number, line in lines:
        try:
            prompt = json.loads(line)["prompt"]
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(
                f'prompts={file}, line {number}: expected a JSON object with the key "prompt".'
            ) from error
        if not isinstance(prompt, str):
            raise RequestError(f'prompts={file}, line {number}: "prompt" is no text.')
        found.append(prompt)
    return found
