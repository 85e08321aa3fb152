"""The text that every Python brings along: its library's docstrings, its language reference."""

import ast
import hashlib
import inspect
import json
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from txlab.core.errors import RequestError, RunError
from txlab.data.cache import key, whole
from txlab.data.files import digest

VERSION = 1
"""Raise when the same library would give other documents."""
NGRAM = 13
"""Words in a row that no two documents have in common."""
MIN_WORDS = 40
"""Shorter documents are left out."""
SKIPPED = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "__pycache__",
    "_bundled",
}


@dataclass(frozen=True)
class Corpus:
    """The written corpus and how it came about."""

    file: Path
    sha256: str
    documents: int
    repeated: int
    """Documents dropped because they share `NGRAM` words in a row with a kept one."""
    short: int
    """Documents dropped because they have fewer than `MIN_WORDS` words."""


def embedded(cache: Path) -> Corpus:
    """The corpus as a .jsonl file (fields `name`, `text`) in the cache; made at the first call.

    It differs between Python versions. RequestError where Python has no source files to read.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    modules = sorted(_modules(folder))
    stats = [
        (f.relative_to(folder).as_posix(), f.stat().st_size, f.stat().st_mtime_ns) for f in modules
    ]
    made_of = key(version=VERSION, python=sys.version, files=stats, rule=(NGRAM, MIN_WORDS))
    file = cache / "corpus" / f"{made_of}.jsonl"
    note = file.with_suffix(".json")
    if note.exists():
        return _open(file, note)
    found = {**dict(topics()), **dict(docstrings(folder, modules))}
    long = {name: text for name, text in found.items() if len(text.split()) >= MIN_WORDS}
    kept = distinct(long)
    if not kept:
        raise RequestError(
            f"the embedded corpus needs the source of Python's library, and {folder} "
            "holds none; give your own text with data.path=FILE."
        )
    lines = "".join(json.dumps({"name": n, "text": kept[n]}) + "\n" for n in sorted(kept)).encode()
    corpus = Corpus(
        file,
        hashlib.sha256(lines).hexdigest(),
        len(kept),
        len(long) - len(kept),
        len(found) - len(long),
    )
    with whole(file) as stream:
        stream.write(lines)
    with whole(note) as stream:
        stream.write(json.dumps(asdict(corpus) | {"file": file.name}).encode())
    return corpus


def _open(file: Path, note: Path) -> Corpus:
    try:
        fields = json.loads(note.read_bytes())
        corpus = Corpus(**fields | {"file": file})
        if digest([file]) == corpus.sha256:
            return corpus
    except (OSError, ValueError, TypeError, RequestError):
        pass
    raise RunError(f"the cached corpus {file} is damaged; delete it and {note.name} and run again.")


def _modules(folder: Path) -> Iterator[Path]:
    """Python files of the standard library, without tests and what was installed beside it."""
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in SKIPPED and not f.startswith("config-")]
        yield from (Path(root, f) for f in files if f.endswith(".py"))


def docstrings(folder: Path, modules: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """(path, docstrings in order) of each file that has some."""
    for file in modules:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # other people's invalid escapes
                tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # templates and fixtures that only end in .py
            continue
        texts = [ast.get_docstring(node) for node in _documented(tree)]
        text = "\n\n".join(t.strip() for t in texts if t and t.strip())
        if text:
            yield file.relative_to(folder).as_posix(), text


def _documented(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef]:
    """The module, its classes and its functions, in the order of the source; statements only."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node  # pyright: ignore[reportReturnType]
    for field in ("body", "cases", "handlers", "orelse", "finalbody"):
        for child in getattr(node, field, ()):
            yield from _documented(child)


def topics() -> Iterator[tuple[str, str]]:
    """(name, text) of the language reference's topics; none where Python came without them."""
    try:
        from pydoc_data.topics import topics as texts
    except ImportError:
        return
    for name in sorted(texts):
        yield f"topic:{name}", inspect.cleandoc(texts[name])


def distinct(documents: dict[str, str]) -> dict[str, str]:
    """The documents without those that share `NGRAM` words in a row with one kept before.

    Long ones are kept first: the reference's chapters hold copies of its shorter topics.
    """
    seen: set[str] = set()
    kept = {}
    for name, text in sorted(documents.items(), key=lambda item: (-len(item[1]), item[0])):
        words = re.findall(r"\w+", text.lower())
        grams = {" ".join(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1)}
        if seen.isdisjoint(grams):
            seen |= grams
            kept[name] = text
    return kept
