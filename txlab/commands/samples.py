"""What `show data` prints: rows in colours or marks, and what they are like."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from txlab.data.preview import CLOSE, OPEN, Span, shortened, spans
from txlab.data.statistics import Statistics, padding, statistics

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from txlab.data.source import Data

ROWS, WIDTH, BAR = 3, 800, 40
SUPERVISED, CONTROL, SECOND, PADDING = "green", "reverse dim", "on grey15", "dim"
"""Styles on a terminal: targets, control tokens, every other document, padding."""


def show(source: "Data", console: "Console | None" = None) -> None:
    """Print samples and figures of prepared data; without a terminal marks stand for colours."""
    from rich.console import Console

    console = console or Console(highlight=False, soft_wrap=True)
    coloured = console.is_terminal and not console.no_color
    for name, value in source.facts.items():
        console.print(f"{name}: {value}", markup=False)
    console.print()
    for line in _samples(source, coloured=coloured):
        console.print(line, markup=False)
    for line in _figures(source):
        console.print(line, markup=False)


def _samples(source: "Data", *, coloured: bool) -> "Iterator[Text | str]":
    batch: Any = source.step_batches().at(0)[0]
    if "tokens" not in batch:
        yield from (f"row {number}: {text}" for number, text in enumerate(source.preview()))
        return
    yield _legend(coloured=coloured)
    for row in range(min(ROWS, len(batch["tokens"]))):
        found = shortened(spans(source.tokenizer, batch, row, shifted=source.shifted), WIDTH)
        yield f"\nrow {row}"
        yield _coloured(found) if coloured else _plain(found)
    yield ""


def _legend(*, coloured: bool) -> "Text | str":
    if not coloured:
        return f"{OPEN}supervised{CLOSE}  [control token]  {{2}} the row's second document"
    from rich.text import Text

    return Text.assemble(
        ("supervised", SUPERVISED), "  ", ("control token", CONTROL), "  ",
        ("every other document", SECOND), "  ", ("padding", PADDING),
    )  # fmt: skip


def _coloured(found: Sequence[Span]) -> "Text":
    from rich.text import Text

    text = Text()
    for span in found:
        if span.padding:
            text.append(f" {span.padding} x padding", PADDING)
            continue
        styles = [SUPERVISED] if span.supervised else []
        styles += [CONTROL] if span.control else []
        styles += [SECOND] if span.document % 2 else []
        text.append(span.text, " ".join(styles))
    return text


def _plain(found: Sequence[Span]) -> str:
    parts: list[str] = []
    document, inside = 0, False
    for span in found:
        if inside and (not span.supervised or span.document != document):
            parts.append(CLOSE)
            inside = False
        if span.document != document and not span.padding:
            document = span.document
            parts.append(f"{{{document + 1}}}")
        if span.supervised and not inside:
            parts.append(OPEN)
            inside = True
        if span.padding:
            parts.append(f"[{span.padding} x padding]")
        else:
            parts.append(f"[{span.text}]" if span.control else span.text)
    return "".join(parts) + (CLOSE if inside else "")


def _figures(source: "Data") -> Iterator[str]:
    for title, rows in (("training", source.train), ("held out", source.val)):
        found = statistics(rows) if len(rows) else None
        if found is None:
            yield f"{title:<12}rows {len(rows):,}"
            continue
        yield f"{title:<12}{_line(found)}"
        yield from _lengths(found)
    waste = padding(source)
    if waste is not None:
        yield f"padding     {waste:.1%} of the places in training batches"
    dropped = {k.removeprefix("dropped_"): n for k, n in source.facts.items() if "dropped_" in k}
    if dropped:
        said = [f"{n:,} {name.replace('_', ' ')}" for name, n in dropped.items()]
        yield f"left out    {', '.join(said)}"
    for note in source.notes:
        yield f"note        {note}"


def _line(found: Statistics) -> str:
    share = found.supervised / max(1, found.tokens)
    some = f"; {found.seen:,} of them:" if found.seen < found.rows else ","
    return (
        f"rows {found.rows:,}{some} tokens {found.tokens:,}, supervised {found.supervised:,} "
        f"({share:.1%}), documents {found.documents:.1f} a row"
    )


def _lengths(found: Statistics) -> Iterator[str]:
    low, middle, most, high = found.quantiles
    yield f"  lengths   min {low:,}, median {middle:,}, 90 % up to {most:,}, max {high:,} tokens"
    counts = found.histogram()
    top = max(count for *_, count in counts)
    for first, last, count in counts if low < high else []:
        bar = "#" * round(BAR * count / top)
        span = f"{first:,}-{last:,}" if last > first else f"{first:,}"
        yield f"  {span:>13}  {bar} {count:,}" if bar else f"  {span:>13}  {count:,}"
