"""Every precision, compiled and not: trains, saves, resumes, loads."""

import pytest

import txlab
from tests.test_resume import go, text

__all__ = ["text"]


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true", "64-true"])
def test_every_precision_trains_compiled_or_not_and_is_loaded(
    tmp_path, text, monkeypatch, precision, compiled
):
    monkeypatch.setenv("TXLAB_COMPILE_BACKEND", "aot_eager")
    words = [f"train.precision={precision}", f"train.compile={compiled}", "train.steps=2"]
    first = go(tmp_path / "run", text, *words)
    assert first["train/loss"] == pytest.approx(5.7, abs=0.3)
    go(tmp_path / "run", text, *words, "train.steps=3", "resume=auto")
    assert txlab.load(tmp_path / "run").tokenizer.vocab_size == 300
