"""Hugging Face directories in the place of a run: load, init_from, generate, evaluate."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

import txlab
from tests.models.hf.directories import directory
from tests.models.hf.tokenizers import TEMPLATE, VOCAB, add_tokenizer
from tests.test_run import TEXT
from txlab.commands import evaluate, export, generate
from txlab.core.errors import RequestError
from txlab.run import train

TINY = [
    "data.batch_size=4",
    "data.val_fraction=0.25",
    "train.steps=2",
    "train.log_every=1",
    "train.sample=null",
    "trainer.accelerator=cpu",
    "model.context=16",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with tokenizer, beside a text to train on."""
    home = tmp_path_factory.mktemp("home")
    (home / "text.txt").write_text(TEXT)
    fields = {"max_position_embeddings": 96, "tie_word_embeddings": True}
    directory(home / "model", vocab_size=VOCAB, **fields)
    add_tokenizer(home / "model")
    return home / "model"


def words(folder: Path) -> list[str]:
    home = folder.parent
    return [*TINY, f"data.path={home}/text.txt", f"data.cache_dir={home}/cache"]


def test_load_brings_weights_tokenizer_and_template(folder):
    model = txlab.load(folder)
    assert not model.training
    assert model.head.weight is model.embed.weight  # type: ignore[attr-defined]
    tokenizer = model.tokenizer  # type: ignore[attr-defined]
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.template) == (None, 2, TEMPLATE)


def test_a_run_that_starts_from_it_needs_it_no_more(folder, tmp_path):
    config = txlab.compose([*words(folder), f"model.init_from={folder}", f"run_dir={tmp_path}/run"])
    assert (config.model.dim, config.model.context, config.model.vocab_size) == (32, 16, VOCAB)
    start = txlab.build(config).state_dict()
    for name, tensor in txlab.load(folder).state_dict().items():
        assert torch.equal(start[name], tensor), name
    train(config)
    folder.rename(tmp_path / "away")
    try:
        trained = txlab.load(tmp_path / "run")
    finally:
        (tmp_path / "away").rename(folder)
    assert trained.head.weight is trained.embed.weight  # type: ignore[attr-defined]
    assert trained.tokenizer.template == TEMPLATE  # type: ignore[attr-defined]
    moved = trained.state_dict()
    assert any(not torch.equal(moved[name], tensor) for name, tensor in start.items())
    again = [*words(folder), f"model.init_from={tmp_path}/run"]
    assert txlab.compose(again).model.attn.n_kv_heads == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["ckpt", "model.init_from"])
def test_generate(folder, capsys, key):
    words = [f"{key}={folder}", "prompt=Line 1", "max_new_tokens=4", "temperature=0"]
    assert generate.main(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Line 1")
    assert re.search(r"tokens/s, ended by: (length|end token)", err)


def test_evaluate(folder, capsys):
    home = folder.parent
    given = [f"data.path={home}/text.txt", f"data.cache_dir={home}/cache"]
    evaluate.main([f"ckpt={folder}", *given, "data.batch_size=2", "data.val_fraction=0.25"])
    assert "val/loss" in capsys.readouterr().out


def test_a_tokenizer_with_more_ids_than_the_embedding_has_rows(folder, tmp_path):  # TIE-03
    directory(tmp_path, vocab_size=VOCAB - 3)
    add_tokenizer(tmp_path)
    given = [*words(folder), f"model.init_from={tmp_path}", f"run_dir={tmp_path}/run"]
    with pytest.raises(RequestError, match=rf"vocab_size={VOCAB - 3} is below .* {VOCAB} ids"):
        train(txlab.compose(given))
    with pytest.raises(RequestError, match=rf"has {VOCAB} ids, .* only {VOCAB - 3} rows"):
        generate.main([f"ckpt={tmp_path}", "prompt=x"])


def test_changes_that_its_weights_do_not_fit(folder):
    given = [*words(folder), f"model.init_from={folder}", "model.attn=mqa"]
    with pytest.raises(RequestError, match=r"layers\.0\.attn\.k\.weight \[16, 32\]"):
        txlab.build(txlab.compose(given))
    with pytest.raises(RequestError, match="brings its tokenizer along"):
        txlab.compose([*words(folder), f"model.init_from={folder}", "tokenizer=bpe"])


def test_chat_prints_the_answer_alone(folder, capsys):
    given = [f"ckpt={folder}", "prompt=Line 1", "max_new_tokens=4", "temperature=0", "chat=true"]
    generate.main(given)
    single = capsys.readouterr().out
    assert "Line 1" not in single
    generate.main([*given, "system=Be brief.", "n=2"])
    assert "--- prompt 1, answer 2" in capsys.readouterr().out
    model = txlab.load(folder)
    ids = model.tokenizer.encode("user\nLine 1")  # type: ignore[attr-defined]
    ends = model.tokenizer.encode("\n"), model.tokenizer.encode("assistant\n")  # type: ignore
    made = generate_ids(model, [1, *ids, 2, *ends[0], 1, *ends[1]])
    assert single.rstrip("\n") == made.rstrip("\n")


def generate_ids(model, prompt: list[int]) -> str:
    """The greedy answer of the model's logits, without any cache."""
    tokens = list(prompt)
    for _ in range(4):
        with torch.no_grad():
            logits = model.logits(model(torch.tensor([tokens])).states)[0, -1]
        logits[:2] = -torch.inf
        tokens.append(int(logits.argmax()))
    return model.tokenizer.decode(tokens[len(prompt) :])


def test_a_system_message_belongs_to_a_chat(folder):
    with pytest.raises(RequestError, match="give chat=true as well"):
        generate.main([f"ckpt={folder}", "prompt=x", "system=y"])


def test_import_and_export(folder, tmp_path, capsys):
    verb = import_module("txlab.commands.import").main
    assert verb([str(folder), f"out={tmp_path}/own"]) == 0
    assert not (tmp_path / "own" / "config.json").exists()
    first, own = txlab.load(folder), txlab.load(tmp_path / "own")
    for name, tensor in first.state_dict().items():
        assert torch.equal(own.state_dict()[name], tensor), name
    assert own.tokenizer.template == TEMPLATE  # type: ignore[attr-defined]
    assert txlab.compose([f"model.init_from={tmp_path}/own"]).model.dim == 32
    assert export.main([f"ckpt={tmp_path}/own", f"{tmp_path}/again"]) == 0
    assert "a llama model in float32" in capsys.readouterr().out
    again = txlab.load(tmp_path / "again")
    for name, tensor in first.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert again.tokenizer.end_ids == first.tokenizer.end_ids  # type: ignore[attr-defined]
    with pytest.raises(RequestError, match="exists: name a folder"):
        verb([str(folder), f"out={tmp_path}/own"])
    with pytest.raises(RequestError, match=r"it has no config\.json"):
        verb([str(tmp_path / "own"), f"out={tmp_path}/other"])
