"""A plugin that fails is reported with its distribution, and does not stop anybody."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from txlab.core import plugins
from txlab.core.errors import RequestError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: Any) -> Path:
    """A site folder with a distribution of one good and one broken plugin."""
    info = tmp_path / "acme_parts-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-parts\nVersion: 1.2\n")
    entries = "[txlab.plugins]\ngood = acme_good\nbroken = acme_broken\n"
    (info / "entry_points.txt").write_text(entries)
    (tmp_path / "acme_good.py").write_text("loaded = True\n")
    (tmp_path / "acme_broken.py").write_text("raise ValueError('no\\nway')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_tried", set())
    monkeypatch.setattr(plugins, "FAILURES", [])
    monkeypatch.delenv("TXLAB_PLUGINS", raising=False)
    yield tmp_path
    for name in ("acme_good", "acme_broken"):
        sys.modules.pop(name, None)


def test_a_failing_plugin_warns_once_and_the_others_load(site: Path, capsys: Any):
    plugins.discover()
    plugins.discover()
    said = capsys.readouterr().err
    assert said == (
        "txlab: warning: plugin 'broken' (acme_broken) of acme-parts 1.2 failed to load: "
        "ValueError: no way\n"
    )
    failures = list(plugins.FAILURES)
    assert failures == [said.removeprefix("txlab: warning: ").rstrip()]
    assert sys.modules["acme_good"].loaded


def test_the_environment_chooses(site: Path, monkeypatch: Any):
    def names() -> list[str]:
        return [entry.name for entry in plugins.chosen(plugins.GROUP)]

    assert names() == ["broken", "good"]
    monkeypatch.setenv("TXLAB_PLUGINS", "good")
    assert names() == ["good"]
    monkeypatch.setenv("TXLAB_PLUGINS", "off")
    assert names() == []
    monkeypatch.setenv("TXLAB_PLUGINS", "good, goood")
    with pytest.raises(
        RequestError, match=r"names goood, which is not installed; installed: broken"
    ):
        names()


def test_a_plugin_asked_for_by_name_must_load(site: Path):
    plugins.load(["acme_good"])
    with pytest.raises(
        RequestError, match=r"plugins=\[acme_broken\] cannot be imported: .* no way"
    ):
        plugins.load(["acme_broken"])


def test_who_brought_a_module(site: Path):
    assert plugins.provider("acme_good.part") == "acme-parts 1.2"
    assert plugins.provider("txlab.nn.attention").startswith("txlab ")
    assert plugins.provider("pytest").startswith("pytest ")
    assert plugins.provider("nobodys.module") == "module nobodys.module"


def test_entry_points_without_a_distribution_have_a_name():
    entry = EntryPoint("x", "y", plugins.GROUP)
    assert plugins._distribution(entry) == "an unnamed distribution"


def test_a_module_may_be_named_that_is_no_installed_plugin(site: Path, monkeypatch: Any):
    (site / "acme_loose.py").write_text("loaded = True\n")
    monkeypatch.setenv("TXLAB_PLUGINS", "acme_loose,good")
    plugins.discover()
    assert sys.modules.pop("acme_loose").loaded
    assert "acme_good" in sys.modules
    assert "acme_broken" not in sys.modules


def test_a_module_that_ends_the_program_is_refused_like_any_other(site: Path, monkeypatch: Any):
    (site / "acme_exit.py").write_text("raise SystemExit(3)\n")
    for ask in (lambda: plugins.load(["acme_exit"]), plugins.discover):
        with pytest.raises(RequestError, match=r"plugins=\[acme_exit\] cannot be imported: System"):
            ask()
        monkeypatch.setenv("TXLAB_PLUGINS", "acme_exit")
