"""docs/backends.md says what the backends do today, and every `no` in it is a line of refusal."""

from pathlib import Path

from txlab.nn.backend import backend
from txlab.testing.backends import FEATURES, refusal, table
from txlab.testing.harness import Subject

PAGE = Path(__file__).parents[1] / "docs" / "backends.md"


def test_the_table_of_backends_is_fresh() -> None:
    found = PAGE.read_text(encoding="utf-8")
    again = "python -m txlab.testing.backends > docs/backends.md"
    assert found == table(), f"docs/backends.md is out of date: {again}"


def test_every_no_is_a_line_that_names_backend_and_way_out() -> None:
    for name, option in backend.options.items():
        for feature in (*FEATURES, "dropout", "fused"):
            if feature not in option.cls.supports:
                line = refusal(Subject(backend, option), feature)
                assert "\n" not in line
                assert f"model.backend={name} cannot compute {feature}" in line
                assert "use model.backend=" in line
