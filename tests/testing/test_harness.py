"""The harness: which checks run, exemptions, options that nobody registered, pytest's ids."""

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from txlab.core.errors import RequestError
from txlab.nn.attention import MHA, attention
from txlab.nn.position import Position
from txlab.testing import contract, judge, lent, parametrize_with_contracts, subjects
from txlab.testing.harness import Status, checks, checks_of, slot_of, stray_exemptions, verdicts


class Silent(Position):
    """Says that it has no positions."""

    exempt: ClassVar[dict[str, str]] = {
        "tells_order": "it has none",
        "shift_invariant": "no longer true",
        "tels_order": "misspelt",
    }


def test_exemptions_count_go_stale_and_must_exist() -> None:
    with lent(Silent) as subject:
        results = {result.check: result for result in verdicts(subject)}
        assert stray_exemptions(subject) == ["tels_order"]
    assert results["tells_order"].status is Status.exempt
    assert results["tells_order"].detail == "it has none"
    assert results["shift_invariant"].status is Status.failed
    assert "drop the exemption (no longer true)" in results["shift_invariant"].detail
    assert results["tels_order"].status is Status.failed
    assert results["works_inside_attention"].status is Status.failed


def test_lent_options_leave_nothing_behind() -> None:
    class Mine(MHA):
        """One of my own."""

        @dataclass
        class Config(MHA.Config):
            wide: bool = False

    own = Mine.Config
    with lent(Mine, "mine") as subject:
        assert str(subject) == "model.attn=mine"
        assert attention.option("mine").cls is Mine
        assert subject.config().name == "mine"
        assert [str(s) for s in subject.switched()] == [
            "model.attn=mine",
            "model.attn=mine,sink_logit=true,gate=true,qk_norm=true,qkv_bias=true,out_bias=true,"
            "wide=true",
        ]
    assert "mine" not in attention.options
    assert Mine.Config is own
    with pytest.raises(RequestError):
        attention.option_of(own())


def test_registered_options_are_lent_as_they_are() -> None:
    with lent(MHA) as subject:
        assert str(subject) == "model.attn=mha"
    assert attention.option("mha").cls is MHA


def test_a_class_of_no_slot_is_refused() -> None:
    with pytest.raises(
        RequestError, match=r"derives from no slot's interface.*Mixer \(model.attn\)"
    ):
        slot_of(dict)


def test_subjects_by_name_path_and_class() -> None:
    for wanted in ("gqa", "model.attn=gqa"):
        assert {str(s).partition(",")[0] for s in subjects(options=[wanted])} == {"model.attn=gqa"}
    assert {s.option.name for s in subjects(options=[MHA])} == {"mha"}
    assert {s.slot.path for s in subjects(["model.norm"])} == {"model.norm"}
    with pytest.raises(RequestError, match=r"Did you mean model\.attn=gqa"):
        subjects(options=["model.attn=gqaa"])
    with pytest.raises(RequestError, match=r"unknown slot 'model\.attnn'"):
        subjects(["model.attnn"])


def test_checks_apply_where_the_fields_are() -> None:
    names = {
        name: {check.name for check in checks_of(subjects(options=[name])[0])}
        for name in ("mha", "gqa", "sinusoidal")
    }
    assert "window_in_decoding" in names["mha"]
    assert names["gqa"] - names["mha"] == {
        "heads_are_grouped_in_order",
        "extremes_are_mha_and_mqa",
        "uneven_groups_are_refused",
    }
    assert "shift_invariant" not in names["sinusoidal"]


def test_every_check_says_what_it_promises() -> None:
    assert not [name for name, check in checks().items() if not check.doc.endswith(".")]


def test_a_check_is_registered_once() -> None:
    def deterministic(subject: object) -> None:
        """Taken."""

    with pytest.raises(ValueError, match="'deterministic' is registered twice"):
        contract("model.attn")(deterministic)


def test_parametrize_makes_ids_and_strict_exemptions() -> None:
    (mark,) = [parametrize_with_contracts(options=["none"]).mark]
    names, cases = mark.args
    assert names == ("option", "check")
    ids = {case.id: case for case in cases}
    assert "model.pos=none-deterministic" in ids
    (xfail,) = ids["model.pos=none-tells_order"].marks
    assert xfail.name == "xfail"
    assert xfail.kwargs["strict"]
    assert "causal mask" in xfail.kwargs["reason"]


def test_failures_are_one_line_results() -> None:
    class Crashes(MHA):
        """Crashes in two lines."""

        def forward(self, *args: object, **kwargs: object) -> None:  # pyright: ignore
            raise KeyError("one\ntwo")

    with lent(Crashes) as subject:
        result = judge(subject, checks()["causal_by_gradient"])
    assert result.status is Status.failed
    assert result.detail.startswith("KeyError: ")
    assert "\n" not in result.detail


def test_neither_pytest_nor_lightning_is_needed() -> None:
    heavy = "bool({'pytest', 'lightning'} & set(sys.modules))"
    code = f"import sys, txlab.testing as t; t.subjects(); sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
