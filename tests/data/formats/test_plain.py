from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data.formats import plain


def parts(file: Path) -> list[str]:
    return list(plain.Text(file).text("text"))


@given(st.text("a\r\né😀\ufeff", max_size=40), st.integers(1, 9))
def test_the_size_of_parts_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, text: str, span: int
) -> None:
    file = tmp_path_factory.mktemp("plain") / "a.txt"
    file.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "SPAN", max(span, 3))  # a byte order mark is looked for in the first
        found = parts(file)
    assert "".join(found) == text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("at", [0, 1, 5, 6, 11, 12])
def test_a_bad_byte_is_named_in_any_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(plain, "SPAN", 4)
    raw = bytearray(b"ab\ncd\nef\ngh\nij")
    raw[at] = 0xE9
    (tmp_path / "a.txt").write_bytes(raw)
    line = 1 + raw[:at].count(b"\n")
    with pytest.raises(RequestError, match=rf"a\.txt, line {line}, byte {at}: 0xE9 is no UTF-8"):
        parts(tmp_path / "a.txt")


def test_a_character_cut_off_at_the_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("ab\n😀".encode()[:-1])
    with pytest.raises(RequestError, match="line 2, byte 3: 0xF0 is no UTF-8"):
        parts(tmp_path / "a.txt")


def test_a_large_text_comes_in_parts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * (plain.SPAN + 5))
    assert [len(part) for part in parts(tmp_path / "a.txt")] == [plain.SPAN, 5]


def test_a_text_has_no_fields(tmp_path: Path) -> None:
    with pytest.raises(
        RequestError, match=r"a\.txt: expected a \.jsonl file, .* a text has no fields"
    ):
        plain.Text(tmp_path / "a.txt").entry()
