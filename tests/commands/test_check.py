"""`python -m txlab check`: the table, the exit status, and what is refused."""

import sys
from pathlib import Path

import pytest

from txlab.__main__ import dispatch
from txlab.core.errors import RequestError
from txlab.core.slot import SLOTS

PLUGIN = '''
from txlab.nn.norm import Norm, RMSNorm

class Good(RMSNorm):
    """RMSNorm under another name."""

class Bad(Norm):
    """Norms nothing."""

    def forward(self, x):
        return x
'''


def test_prints_a_table_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["check", "model.pos=none"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model.pos=none"
    assert lines[1].split() == ["keeps_shape_and_dtype", "passed"]
    exempt = [line.split(maxsplit=2) for line in lines if " exempt " in line]
    assert ["tells_order", "exempt"] in [words[:2] for words in exempt]
    assert all("no positions" in words[2] for words in exempt)
    n = len(lines) - 2
    assert lines[-1] == f"{n} checks: {n - 2} passed, 0 failed, 2 exempt"


def test_all_ends_with_what_was_spared_and_how_much_was_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import txlab.testing
    from txlab.testing import subjects
    from txlab.testing.harness import checks_of

    few = subjects(["schedule"]) + subjects(options=["model.pos=none"])
    monkeypatch.setattr(txlab.testing, "subjects", lambda: few)
    assert dispatch(["check", "all"]) == 0
    out = capsys.readouterr().out.splitlines()
    *_, heading, first, second, counted, last = out
    assert heading == "exempt:"
    assert all(line.endswith(" (model.pos=none)") for line in (first, second))
    assert any(line.startswith("  tells_order: ") for line in (first, second))
    assert [line for line in out if line.startswith("[")] == [
        f"[{i}/{len(few)}] {subject}" for i, subject in enumerate(few, 1)
    ]
    n = len({subject.option.name for subject in few})
    kinds = len({check.name for subject in few for check in checks_of(subject)})
    turned = f"{len(few) - n} of them again with their switches turned"
    assert counted.startswith(f"{n} options, {turned}; {kinds} checks; ")
    cells = sum(len(checks_of(subject)) for subject in few)
    assert last == f"{cells} cells of option x check: {cells - 2} passed, 0 failed, 2 exempt"


def test_classes_that_nobody_registered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange_norms.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = list(SLOTS["model.norm"].options)
    assert dispatch(["check", "strange_norms:Good"]) == 0
    assert "FAILED" not in capsys.readouterr().out
    assert dispatch(["check", "strange_norms:Bad"]) == 1
    out = capsys.readouterr().out
    assert "forgets_scale" in out
    assert "FAILED" in out
    assert list(SLOTS["model.norm"].options) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model.pos=nonee"], "Did you mean none"),
        (["model.poss=none"], "unknown slot 'model.poss'"),
        (["nothing_here:Mine"], "nothing_here cannot be imported: ModuleNotFoundError"),
        (["txlab.nn.norm:Normm"], "txlab.nn.norm has no class 'Normm'"),
        (["txlab.core.config:Dims"], "Dims derives from no slot's interface"),
        (["gqa"], "expected SLOT=NAME"),
        ([], "check takes SLOT=NAME, module:Class or all, not nothing"),
        (["a=b", "c=d"], "not a=b c=d"),
    ],
)
def test_refuses_in_one_line(words: list[str], says: str) -> None:
    with pytest.raises(RequestError) as caught:
        dispatch(["check", *words])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
