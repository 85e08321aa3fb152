"""Train a tokenizer, show how it divides a text, or measure it: tokenize train|encode|stats.

    python -m txlab tokenize train data.path=notes/ tokenizer=bpe tokenizer.vocab_size=8k out=DIR
    python -m txlab tokenize encode tokenizer=pretrained tokenizer.path=DIR text="It's 5"
    python -m txlab tokenize encode ckpt=RUN file=notes/a.md
    python -m txlab tokenize stats +recipe=pretrain tokenizer=unigram

train learns from the training texts of any data, in at most 2 GB of memory, and writes DIR, which
is new: transformers' AutoTokenizer reads it with equal ids, and so do tokenizer=pretrained
tokenizer.path=DIR and, with the option it is of, tokenizer.path=DIR/tokenizer.json.
encode and stats take the tokenizer that a run with these overrides has, or that of ckpt=RUN; stats
counts over the training texts of the composed data, most_bytes=100M only so much of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlab.core.arguments import parse
from txlab.core.errors import RequestError
from txlab.core.hydra import compose

if TYPE_CHECKING:
    from rich.progress import Progress

    from txlab.data.source import Data
    from txlab.data.tokenizer import Tokenizer
    from txlab.data.tokenizer.figures import Figures
    from txlab.schema import Config

MEASURED = 16 << 20
"""Bytes of the training texts that a new tokenizer is measured on."""
COLOURS = ("bright_green", "bright_cyan", "bright_yellow")


@dataclass
class Train:
    """Arguments of `tokenize train`."""

    out: str
    """Directory to write; it must be new."""


@dataclass
class Encode:
    """Arguments of `tokenize encode`."""

    text: str | None = None
    """Text to divide, letter by letter as it stands."""
    file: str | None = None
    """File of the text, in UTF-8."""
    ckpt: str | None = None
    """Run folder, checkpoint or Hugging Face directory whose tokenizer is meant."""


@dataclass
class Stats:
    """Arguments of `tokenize stats`."""

    ckpt: str | None = None
    """Run folder, checkpoint or Hugging Face directory whose tokenizer is meant."""
    most_bytes: int | None = None
    """Bytes of text after which counting ends; null: all."""


def main(words: Sequence[str]) -> int:
    """Do what the first word says."""
    actions = {"train": train, "encode": encode, "stats": stats}
    first = words[0] if words else ""
    if first not in actions:
        raise RequestError(f"tokenize {first}: expected {', '.join(actions)} as its first word.")
    actions[first](list(words[1:]))
    return 0


def train(words: list[str]) -> None:
    """Train a tokenizer on the composed data and write its directory."""
    from txlab.core.files import refuse_as_new
    from txlab.data.tokenizer import directory, tokenizer

    arguments, rest = parse(Train, words, rest=True)
    target = Path(arguments.out).expanduser().absolute()
    config = compose(rest)
    data = data_of(config)
    wanted: Any = data.wanted
    option = tokenizer.option_of(wanted)
    if not option.cls.trainable or wanted.path is not None:
        given = f"tokenizer={option.name}" if wanted.path is None else "tokenizer.path"
        raise RequestError(f"tokenize train makes a new tokenizer, {given} names a finished one.")
    refuse_as_new(target, "out=")
    made = tokenizer.build(wanted)
    size = size_of(data)
    with progress() as bar:
        made.train(watched(data.texts(made), bar, "reading", size, after="learning"))
        part = None if size is None else min(size, MEASURED)
        found, cut = measured(made, watched(data.texts(made), bar, "measuring", part), MEASURED)
    directory.write(made, target)
    print(f"{option.name} tokenizer of {made.vocab_size:,} tokens, written to {target}")
    if made.vocab_size < wanted.vocab_size:
        print(f"the text gives no more: tokenizer.vocab_size={wanted.vocab_size:,} were wanted")
    if made.sampled > 1:
        print(f"pieces that occur less than {made.sampled} times were counted by a sample of them")
    part = f"the first {found.bytes / 1e6:,.1f} MB" if cut else f"{found.bytes / 1e6:,.1f} MB"
    print(f"on {part} of the training texts: {figures(found)}")


def encode(words: list[str]) -> None:
    """Print the pieces and the ids of a text."""
    from txlab.data.tokenizer.figures import Figures

    arguments, rest = parse(Encode, words, rest=True)
    if (arguments.text is None) == (arguments.file is None):
        raise RequestError("tokenize encode takes text=... or file=..., one of them.")
    text = arguments.text
    if arguments.file is not None:
        text = read_text(Path(arguments.file).expanduser())
    assert text is not None
    found = tokenizer_of(compose(rest), arguments.ckpt)
    ids = found.encode(text)
    show_pieces(found, ids)
    print(*ids)
    print(figures(Figures(found).of(text)))


def stats(words: list[str]) -> None:
    """Print how a tokenizer does on the composed data."""
    arguments, rest = parse(Stats, words, rest=True)
    config = compose(rest)
    most = arguments.most_bytes
    if most is not None and most < 1:
        raise RequestError(f"most_bytes={most}: expected a number above 0, or null.")
    made = tokenizer_of(config, arguments.ckpt)
    data = data_of(config)
    with progress() as bar:
        total = most or size_of(data)
        found, cut = measured(made, watched(data.texts(made), bar, "counting", total), most)
    print(f"{found.bytes:,} bytes of training text{' (there is more)' if cut else ''}")
    print(figures(found))
    print(f"{made.vocab_size:,} tokens in the vocabulary, {found.unused:,} of them never used")
    lengths = found.lengths()
    print("\nbytes of a token, and how often such tokens came")
    for length, n in lengths.items():
        share = n / max(found.tokens, 1)
        print(f"{length:>5} {n:>14,} {share:>6.1%}  {'#' * round(50 * share)}".rstrip())
    print("\nmost frequent tokens")
    frequent = found.frequent(20)
    pieces = spelled(made, [i for i, _ in frequent])
    for (i, n), piece in zip(frequent, pieces, strict=True):
        print(f"{i:>7} {n:>12,} {n / max(found.tokens, 1):>6.1%}  {piece}")


def data_of(config: "Config") -> "Data":
    """The composed data, not prepared."""
    from txlab.data.source import data

    return data.build(config.data, config.tokenizer, context=config.model.context, seed=config.seed)


def tokenizer_of(config: "Config", ckpt: str | None) -> "Tokenizer":
    """The tokenizer of a checkpoint, or the one that a run of this config has."""
    from txlab.data.tokenizer import tokenizer
    from txlab.loading import folder_of, saved_config, saved_tokenizer

    source = ckpt or config.model.init_from
    if source is not None:
        folder = folder_of(Path(source).expanduser())
        found = saved_tokenizer(folder, saved_config(folder))
        if found is None:
            raise RequestError(f"{source} holds no tokenizer.")
        return found
    if config.tokenizer.path is not None:
        return tokenizer.option_of(config.tokenizer).cls.from_path(config.tokenizer)
    data = data_of(config)
    data.prepare()
    return data.tokenizer


def measured(
    tokenizer: "Tokenizer", texts: Iterable[str], most: int | None
) -> tuple["Figures", bool]:
    """Figures over the texts, and whether they were cut at `most` bytes."""
    from txlab.data.tokenizer.figures import Figures

    found = Figures(tokenizer)
    cut = found.add(texts, most=most)
    if not found.bytes:
        raise RequestError("there is no training text to count: look at data.val_fraction.")
    return found, cut


def figures(found: "Figures") -> str:
    """The line of figures."""
    share = found.unknown / max(found.tokens, 1)
    return (
        f"{found.tokens:,} tokens, {found.bytes_a_token:.3f} bytes a token, {found.unknown:,} "
        f"unknown ({share:.3%}){f', {found.lost:,} bytes lost' if found.lost else ''}"
    )


def progress() -> "Progress":
    """Bar on the terminal's error stream; nothing where that is a file."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn()]
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def watched(
    texts: Iterable[str], bar: "Progress", doing: str, total: int | None, after: str | None = None
) -> Iterator[str]:
    """The texts; a bar of what is done, when one is taken, and one without end for what follows."""
    for done in bar.task_ids:
        bar.remove_task(done)
    task = bar.add_task(doing, total=total)
    for text in texts:
        bar.advance(task, len(text.encode()))
        yield text
    bar.remove_task(task)
    if after is not None:
        bar.add_task(after, total=None)


def size_of(data: "Data") -> int | None:
    """Bytes of the files that are read, about as much as their text; None: nobody knows."""
    from txlab.data import files

    path = getattr(data.config, "path", None)
    try:
        return None if path is None else sum(f.stat().st_size for f in files.find(path))
    except (RequestError, OSError, TypeError):
        return None  # said in one line when the data is read


def read_text(path: Path) -> str:
    """The text of a file; RequestError where it is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise RequestError(f"file={path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"file={path}: byte {error.start} is no UTF-8.") from error


def show_pieces(tokenizer: "Tokenizer", ids: Sequence[int]) -> None:
    """The pieces one after another, told apart by colours, or by bars where there are none."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    if not console.is_terminal or console.color_system is None:
        print("\u2502".join(spelled(tokenizer, ids)))
        return
    shown = Text()
    for number, (i, piece) in enumerate(zip(ids, spelled(tokenizer, ids), strict=True)):
        style = "black on red" if i == tokenizer.unk_id else f"black on {COLOURS[number % 3]}"
        shown.append(piece, style)
    console.print(shown)


def spelled(tokenizer: "Tokenizer", ids: Sequence[int]) -> list[str]:
    """Each token's text in one line, what is no text by its code; a control token by its name."""
    names = {number: spelling for spelling, number in tokenizer.control.items()}
    return [names[i] if i in names else _in_a_line(tokenizer.decode_bytes([i])) for i in ids]


def _in_a_line(content: bytes) -> str:
    text = content.decode("utf-8", errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
