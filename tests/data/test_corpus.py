import re
import sys
from pathlib import Path

import pytest

from txlab.core.errors import RequestError, RunError
from txlab.data import corpus
from txlab.data.corpus import NGRAM, distinct, docstrings, embedded, topics


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small standard library of its own, without topics."""
    folder = tmp_path / "lib"
    (folder / "test").mkdir(parents=True)
    prose = " ".join(f"word{i}" for i in range(60))
    (folder / "a.py").write_text(f'"""{prose} and more."""\n')
    (folder / "b.py").write_text(f'"""Other words before {prose}."""\n')
    (folder / "c.py").write_text('def f():\n    """Short."""\n')
    (folder / "broken.py").write_text("def (:\n")
    (folder / "test" / "d.py").write_text('"""' + "never read " * 50 + '"""')
    monkeypatch.setattr(corpus.sysconfig, "get_path", lambda name: str(folder))
    monkeypatch.setattr(corpus, "topics", lambda: iter(()))
    return folder


def test_what_is_kept(library: Path, tmp_path: Path) -> None:
    made = embedded(tmp_path / "cache")
    assert (made.documents, made.repeated, made.short) == (1, 1, 1)
    assert '"name": "b.py"' in made.file.read_text()
    again = embedded(tmp_path / "cache")
    assert again == made
    (library / "e.py").write_text('"""' + " ".join(f"new{i}" for i in range(50)) + '"""')
    assert embedded(tmp_path / "cache").documents == 2


def test_a_damaged_copy_is_refused(library: Path, tmp_path: Path) -> None:
    made = embedded(tmp_path / "cache")
    made.file.write_text("{}")
    with pytest.raises(RunError, match="is damaged; delete it"):
        embedded(tmp_path / "cache")


def test_a_python_without_sources_is_told(library: Path, tmp_path: Path) -> None:
    for file in library.glob("*.py"):
        file.unlink()
    with pytest.raises(RequestError, match=r"give your own text with data\.path"):
        embedded(tmp_path / "cache")


def test_docstrings_are_in_order_and_without_indentation(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        '"""Module."""\nclass A:\n    """Class.\n\n    More.\n    """\n'
        '    def f(self):\n        """Method."""\n\nasync def g():\n    r"""Last \\d."""\n'
    )
    assert list(docstrings(tmp_path, [tmp_path / "m.py"])) == [
        ("m.py", "Module.\n\nClass.\n\nMore.\n\nMethod.\n\nLast \\d.")
    ]


def test_repeated_passages_cost_the_shorter_document() -> None:
    shared = " ".join(f"w{i}" for i in range(NGRAM))
    kept = distinct({"a": f"x {shared} y", "b": f"much longer {shared} text", "c": "free"})
    assert list(kept) == ["b", "c"]
    nearly = shared.rsplit(" ", 1)[0]
    assert len(distinct({"a": f"x {nearly} y", "b": f"longer {nearly} text"})) == 2


def test_the_real_topics_share_no_passage() -> None:
    """Leaves no run of 13 words that occurs in two documents: none can leak into validation."""
    found = dict(topics())
    assert len(found) > 50
    kept = distinct(found)
    assert 0.5 < len(kept) / len(found) < 1
    owner: dict[str, str] = {}
    for name, text in kept.items():
        words = re.findall(r"\w+", text.lower())
        for i in range(len(words) - NGRAM + 1):
            assert owner.setdefault(" ".join(words[i : i + NGRAM]), name) == name


@pytest.mark.slow
def test_the_real_corpus(tmp_path: Path) -> None:
    made = embedded(tmp_path)
    assert 1.5e6 < made.file.stat().st_size < 3e6, sys.version
    assert made.documents > 300
