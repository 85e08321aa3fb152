"""Data sets of the hub, tried on folders that are laid out like one: nothing is downloaded."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from txlab.core.errors import RequestError
from txlab.data import Text, hub

Make = Callable[..., Text]
TEXTS = [f"row {i} é " * 5 for i in range(120)]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library keeps its own files, and asks no network."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "some-set"
    (home / "data").mkdir(parents=True)
    for split, texts in (("train", TEXTS[:100]), ("test", TEXTS[100:])):
        table = pa.table({"id": range(len(texts)), "text": texts, "body": texts[::-1]})
        parquet.write_table(table, home / "data" / f"{split}-00000-of-00001.parquet")
    return home


def lines(file: Path) -> list[str]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_split_is_streamed_into_a_file_once(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    file = hub.fetch(f"hf://{folder}", "text", None, "train", cache)
    assert lines(file) == [{"text": text} for text in TEXTS[:100]]
    state = file.stat()
    assert hub.fetch(f"hf://{folder}", "text", None, "train", cache).stat() == state
    other = hub.fetch(f"hf://{folder}", "body", None, "test", cache)
    assert lines(other) == [{"body": text} for text in TEXTS[100:][::-1]]
    parquet.write_table(
        pa.table({"text": ["new"]}), folder / "data" / "train-00000-of-00001.parquet"
    )
    assert lines(hub.fetch(f"hf://{folder}", "text", None, "train", cache)) == [{"text": "new"}]


def test_subsets_of_a_card(folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: all\n  data_files: data/*.parquet\n"
        "- config_name: few\n  data_files: data/test*.parquet\n---\n"
    )
    file = hub.fetch(f"hf://{folder}", "text", "few", "train", tmp_path / "cache")
    assert len(lines(file)) == 20
    with pytest.raises(RequestError, match=r"subset=most split=train: .*most.*; check the name"):
        hub.fetch(f"hf://{folder}", "text", "most", "train", tmp_path / "cache")


def test_text_of_the_hub(make_text: Make, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_text(path=f"hf://{folder}", val_fraction=0.1)
    assert made.facts["source"] == f"hf://{folder}"
    assert made.facts["documents"] == 100
    monkeypatch.chdir(folder.parent)
    assert Text.Config(path="hf://some-set").path == f"hf://{folder}"
    assert Text.Config(path="hf://somebody/texts@main").path == "hf://somebody/texts@main"


def test_what_is_no_text_is_named_by_its_row(make_text: Make, folder: Path) -> None:
    with pytest.raises(RequestError, match=r"line 1, byte 0: field 'id' holds number; expected"):
        make_text(path=f"hf://{folder}", field="id")


@pytest.mark.parametrize(
    ("path", "field", "split", "reason"),
    [
        ("hf://{}", "nothing", "train", "no field 'nothing' .*: id, text, body"),
        ("hf://{}", "text", "nothing", "split=nothing: .*nothing.*; check the name, the network"),
        ("hf://no-one/no-such-set", "text", "train", "split=train: .*; check the name, the net"),
    ],
)
def test_bad_names_are_refused(
    folder: Path, tmp_path: Path, path: str, field: str, split: str, reason: str
) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        hub.fetch(path.format(folder), field, None, split, tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("hub/*"))
