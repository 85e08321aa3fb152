"""`show` tells all about an option, and what a run would be."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from txlab.commands.show import main
from txlab.core.errors import RequestError
from txlab.core.hydra import compose, from_yaml
from txlab.run import train


@pytest.mark.parametrize("form", ["model.attn=gqa", "model/attn=gqa"])
def test_an_option(form: str, capsys: Any):
    main([form])
    shown = capsys.readouterr().out
    assert shown.startswith("model.attn=gqa: Grouped-query attention")
    assert "paper:  Ainslie et al. 2023\n" in shown
    assert "origin: txlab/nn/attention/heads.py:" in shown
    assert "from:   txlab 0.1.0\n" in shown
    assert "  model.attn.n_kv_heads=null  (int | None)\n      Key/value heads; None: " in shown
    assert "model.attn.name" not in shown


def test_an_option_without_fields(capsys: Any):
    main(["model.pos=none"])
    assert "fields: none" in capsys.readouterr().out


def test_the_composed_config(capsys: Any):
    words = ["+recipe=pretrain", "model.attn=mqa", "train.tokens=1M"]
    main(["config", *words])
    assert from_yaml(capsys.readouterr().out) == compose(words)


def test_the_schedule(capsys: Any):
    main(["schedule", "train.steps=100", "schedule.warmup=10", "optim.lr=1.0"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [rows[0][0], rows[-1][0]] == ["0", "99"]
    assert float(rows[0][2]) == pytest.approx(0.1)
    assert max(float(row[2]) for row in rows) <= 1.0


@pytest.mark.parametrize(
    "name", ["cosine", "linear", "constant", "wsd", "inverse_sqrt", "one_cycle"]
)
def test_the_picture_of_a_schedule(capsys: Any, tmp_path: Path, name: str):
    file = tmp_path / "lr.png"
    words = ["schedule", f"schedule={name}", "train.steps=50", "schedule.warmup=5", f"out={file}"]
    main(words)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) in (22, 23)
    assert max(line.count("#") for line in shown) == 50
    assert file.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(RequestError, match="does not exist yet"):
        main(words)


def test_a_schedule_of_one_update_at_rate_0(capsys: Any):
    main(
        [
            "schedule",
            "schedule=linear",
            "schedule.warmup=0",
            "schedule.min_ratio=0",
            "train.steps=1",
        ]
    )
    assert capsys.readouterr().out.split() == ["0", "lr", "0.000e+00"]


def test_a_schedule_of_any_length(capsys: Any):
    """A billion updates are shown by some of them, the peak among these."""
    words = ["train.steps=1e9", "schedule.warmup=123457", "optim.lr=1.0"]
    main(["schedule", *words])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [rows[0][0], rows[-1][0]] == ["0", "999999999"]
    assert "123456" in [row[0] for row in rows if row[2] == "1.000e+00"]


def test_the_initialisation(capsys: Any):
    sizes = ["model.dim=64", "model.n_layers=3", "tokenizer.vocab_size=300"]
    main(["init", "+recipe=pretrain", "model.init=mup", "model.init.base_dim=32", *sizes])
    rows = [re.split(r"\s{2,}|(?<=\]) ", line) for line in capsys.readouterr().out.splitlines()]
    found = {row[0]: row[1:] for row in rows}
    assert found["embed.weight"] == ["[300, 64]", "N(0, 0.02)"]
    assert found["layers.0-2.attn.q.weight"][1] == "N(0, 0.01414)"
    assert found["layers.0-2.attn.o.weight"][1] == "N(0, 0.005774)"
    assert found["layers.0-2.residual.norms.ffn.weight"] == ["[64]", "as made"]
    assert rows[-1] == ["the last states are multiplied by 0.5 before the head"]
    main(["init", "+recipe=pretrain", "model.init=llama", *sizes])
    shown = capsys.readouterr().out
    assert "layers.2.attn.o.weight" in shown
    assert "layers.0-2.attn.q.weight" in shown


CHATS = ["debug=fast", "data=chat", "data.n_train=60", "data.n_val=12", "model.context=128"]


def test_samples_and_figures_of_chats(capsys: Any, tmp_path: Path):
    """Without a terminal: marks, and no escape codes."""
    main(["data", *CHATS, f"data.cache_dir={tmp_path}"])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\nrow 0\n[<|bos|><|start|>]user\n" in shown
    assert re.search(
        r"\[<\|start\|>\]assistant\n\u00ab[a-z0-9 ]+\[<\|end\|>\]\u00bb\n\{2\}\[<", shown
    )
    assert re.search(
        r"\ntraining    rows \d+, tokens [\d,]+, supervised \d+ \(\d+\.\d%\), doc", shown
    )
    assert re.search(r"\n  lengths   min \d+, median \d+, 90 % up to \d+, max \d+ tokens\n", shown)
    assert re.search(r"\n +\d+(-\d+)?  #+ \d+\n", shown)
    assert re.search(r"\nheld out    rows \d+, tokens", shown)
    assert re.search(r"\npadding     \d+\.\d% of the places in training batches\n", shown)


def test_colours_on_a_terminal(tmp_path: Path):
    from rich.console import Console

    from txlab.commands.samples import show
    from txlab.run import prepare_data

    data = prepare_data(compose([*CHATS, f"data.cache_dir={tmp_path}"]))
    stream = io.StringIO()
    show(data, Console(file=stream, force_terminal=True, color_system="256", width=200))
    shown = stream.getvalue()
    assert "\x1b[32msupervised\x1b[0m" in shown
    assert "\u00ab" not in shown
    assert re.search(r"\x1b\[2;7m<\|bos\|><\|start\|>\x1b\[0m", shown)  # control, dim and inverse
    assert re.search(r"\x1b\[32m[a-z0-9 ]+\x1b\[0m\x1b\[2;7;32m<\|end\|>", shown)  # an answer
    assert re.search(r"\x1b\[48;5;\d+muser", shown)  # every other document on another ground


def test_what_was_left_out_and_noted(capsys: Any, tmp_path: Path):
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    lines = [{"messages": turns, "id": 5}, {"messages": turns[:1]}, {"text": "x"}]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [f"data.path={tmp_path / 'x.jsonl'}", f"data.cache_dir={tmp_path}"]
    main(["data", *CHATS[:2], *words, "data.val_fraction=0", "data.on_error=skip"])
    shown = capsys.readouterr().out
    assert "left out    1 no answer, 1 unreadable\n" in shown
    assert "note        keys that are left alone: id (1 lines)\n" in shown
    assert "held out    rows 0\n" in shown


@pytest.mark.parametrize("data", ["pairs", "prompts"])
def test_samples_of_other_data(data: str, capsys: Any, tmp_path: Path):
    words = ["debug=fast", f"data={data}", "data.n_train=12", "data.n_val=4", "model.context=128"]
    main(["data", *words, f"data.cache_dir={tmp_path}"])
    shown = capsys.readouterr().out
    assert ("\u00bb" in shown.partition("row 0")[2]) == (data == "pairs")
    assert ("supervised 0 (0.0%)" in shown) == (data == "prompts")


def test_data_in_the_tokens_of_a_model(capsys: Any, tmp_path: Path):
    sizes = ["debug=fast", "data=chat", "data.n_train=12", "data.n_val=4", "trainer=cpu"]
    words = [*sizes, f"data.cache_dir={tmp_path}", "tokenizer.vocab_size=280"]
    train(compose([*words, f"run_dir={tmp_path / 'run'}", "train.steps=1"]))
    capsys.readouterr()
    main(["data", *words[:-1], f"model.init_from={tmp_path / 'run'}"])
    assert "vocab_size: 280\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "show : expected SLOT=NAME"),
        (["model.attn"], "show model.attn: expected SLOT=NAME"),
        (["model.attn=gqx"], "Did you mean gqa"),
        (["model.atn=gqa"], "Did you mean model.attn"),
        (["schedule"], "needs train.steps"),
        (["schedule", "train.steps=9", "out=gone/lr.png"], "there is no folder gone"),
        (["coordinates", "model.init=mup", "out=gone/mup.png"], "there is no folder gone"),
    ],
)
def test_bad_words(words: list[str], said: str):
    with pytest.raises(RequestError, match=said):
        main(words)


def test_coordinates(capsys: Any, tmp_path: Path):
    """Figures of each width with the power they follow, beside the standard parametrisation's."""
    words = ["model.init=mup", "model.init.base_dim=16", "model.dim=16", "model.n_heads=1"]
    words += ["optim.scale=mup", "model.n_layers=1", "widths=16,32", "steps=1", "seeds=1"]
    main(["coordinates", *words, f"out={tmp_path / 'mup.png'}"])
    lines = capsys.readouterr().out.splitlines()
    title = "model.init=mup, optim.scale=mup: mean |activation| after 1 updates at the peak rate"
    assert lines[0] == title
    assert lines[1].split() == ["width", "16", "32", "slope"]
    assert [line.split()[0] for line in lines[2:4]] == ["layers.0", "logits"]
    assert lines[4].startswith("standard: model.init=gpt2, optim.scale=none: ")
    assert (tmp_path / "mup.png").stat().st_size > 10_000
    with pytest.raises(RequestError, match=r"name a \.png file that does not exist yet"):
        main(["coordinates", *words, f"out={tmp_path / 'mup.png'}"])
