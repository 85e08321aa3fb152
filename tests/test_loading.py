"""`model.init_from`, `load`, and the verbs that work on a trained run."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
import torch

import txlab
from tests.test_run import TEXT, TINY
from txlab.commands import evaluate, generate
from txlab.core.errors import RequestError
from txlab.data.tokenizer import BPE
from txlab.run import train
from txlab.train.callbacks.log import read_rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder, in a folder of its own with its text."""
    home = tmp_path_factory.mktemp("home")
    (home / "text.txt").write_text(TEXT)
    words = [*TINY, f"data.path={home}/text.txt", f"data.cache_dir={home}/cache"]
    train(txlab.compose([*words, f"run_dir={home}/run", "model.attn=mqa", "model.dim=24"]))
    return home / "run"


def source_words(trained: Path) -> list[str]:
    home = trained.parent
    shared = [word for word in TINY if not word.startswith(("model.", "tokenizer."))]
    return [*shared, f"data.path={home}/text.txt", f"data.cache_dir={home}/cache"]


def test_init_from_brings_config_tokenizer_and_weights(trained):
    words = source_words(trained)
    config = txlab.compose([*words, "+recipe=pretrain", f"model.init_from={trained}"])
    assert config.model.attn.name == "mqa"
    assert (config.model.dim, config.model.n_layers) == (24, 1)
    assert config.tokenizer.vocab_size == 300
    model, source = txlab.build(config), txlab.load(trained)
    for name, tensor in source.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_only_the_command_line_changes_an_inherited_model(trained):
    words = [*source_words(trained), f"model.init_from={trained}"]
    config = txlab.compose([*words, "model.context=8", "model.attn=mha", "model.dropout=0.5"])
    assert (config.model.context, config.model.attn.name, config.model.dropout) == (8, "mha", 0.5)
    with pytest.raises(RequestError, match=r"layers\.0\.attn\.k\.weight"):
        txlab.build(config)


def test_a_tied_model_takes_no_weights_of_an_untied_one(trained, tmp_path):
    """TIE-01: in neither direction; what is tied is one tensor."""
    there = source_words(trained)
    small = ["model.attn=mqa", "model.dim=24", *TINY[:2], "tokenizer.vocab_size=300"]
    for tied, said in ((True, "missing: head.weight"), (False, "extra: head.weight")):
        run = tmp_path / f"tied-{tied}"
        words = [*there, *small, f"run_dir={run}", "train.steps=1"]
        train(txlab.compose([*words, f"model.tie_embeddings={tied}"]))
        given = [*there, f"model.init_from={run}", f"model.tie_embeddings={not tied}"]
        config = txlab.compose(given)
        with pytest.raises(RequestError, match=rf"model\.init_from={run}.* does not fit .*{said}"):
            txlab.build(config)
        with pytest.raises(RequestError, match=said):
            train(dataclasses.replace(config, run_dir=str(tmp_path / "new")))
        assert not (tmp_path / "new").exists()


def test_a_tokenizer_beside_init_from_is_refused(trained):
    words = [*source_words(trained), f"model.init_from={trained}", "tokenizer.vocab_size=400"]
    with pytest.raises(RequestError, match=r"tokenizer\.vocab_size=400.*brings its tokenizer"):
        txlab.compose(words)


def test_evaluate_repeats_the_runs_own_figure(trained, capsys):
    assert evaluate.main([f"ckpt={trained}"]) == 0
    shown = dict(line.split() for line in capsys.readouterr().out.splitlines())
    last = read_rows(trained / "metrics.csv")[-1]
    assert float(shown["val/loss"]) == pytest.approx(last["val/loss"], abs=1e-4)
    assert float(shown["val/bits_per_byte"]) == pytest.approx(last["val/bits_per_byte"], abs=1e-4)
    evaluate.main([f"ckpt={trained}", "data.batch_size=8"])
    again = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert again == shown


def test_evaluate_refuses_what_would_change_nothing(trained):
    with pytest.raises(RequestError, match=r"model\.attn=mha changes nothing here"):
        evaluate.main([f"ckpt={trained}", "model.attn=mha"])


def test_another_runs_tokenizer_is_refused(trained, tmp_path):
    """One of as many ids: nothing else would tell."""
    shutil.copytree(trained / "checkpoints", tmp_path / "checkpoints")
    file = tmp_path / "checkpoints/step-000004/tokenizer.json"
    other = BPE(BPE.Config(vocab_size=280))
    other.train([TEXT.upper()])
    other.save(file)
    with pytest.raises(RequestError, match=r"tokenizer\.json cannot be read \(it has \d+ bytes"):
        txlab.load(tmp_path)


@pytest.mark.parametrize("verb", [evaluate, generate])
def test_a_device_that_is_not_there_is_refused(trained, verb):
    with pytest.raises(RequestError, match="device=nowhere: "):
        verb.main([f"ckpt={trained}", "device=nowhere"])


def test_generate_prints_prompt_text_and_reason(trained, capsys):
    prompt = "C# </s>日"
    assert generate.main([f"ckpt={trained}", f"prompt={prompt}", "max_new_tokens=5"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(prompt)
    assert re.search(r"\[5 tokens, \d+ tokens/s, ended by: length\]", err)


def test_streamed_text_equals_the_text_of_a_batch(trained, capsys):
    words = [f"ckpt={trained}", "prompt=Line", "max_new_tokens=8", "temperature=0"]
    generate.main(words)
    single = capsys.readouterr().out.rstrip("\n")
    generate.main([*words, "n=2"])
    blocks = capsys.readouterr().out.split("--- prompt 1, answer")[1:]
    assert [block.partition("\n")[2].rstrip("\n") for block in blocks] == [single, single]


def test_prompts_of_a_file(trained, tmp_path, capsys):
    file = tmp_path / "prompts.txt"
    file.write_text("Line 1\n\nLine 2\n")
    generate.main([f"ckpt={trained}", f"prompts={file}", "max_new_tokens=2"])
    out = capsys.readouterr().out
    assert "--- prompt 1 (" in out
    assert "\nLine 2" in out
    file.with_suffix(".jsonl").write_text('{"prompt": "Line\u2028 3"}\n', encoding="utf-8")
    assert generate.read_prompts(str(file.with_suffix(".jsonl"))) == ["Line\u2028 3"]
    file.with_suffix(".jsonl").write_text('{"prompt": "Line 3"}\n{"text": 1}\n')
    with pytest.raises(RequestError, match=r'line 2: expected a JSON object with the key "prompt"'):
        generate.main([f"ckpt={trained}", f"prompts={file.with_suffix('.jsonl')}"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "ckpt=RUN"),
        (["ckpt="], "ckpt=RUN"),
        (["ckpt=nowhere"], "nowhere: there is no such folder"),
        (["ckpt=x", "temprature=1"], "Did you mean temperature"),
        (["ckpt=x", "top_k=0"], "top_k=0: expected at least 1"),
        (["ckpt=x", "max_new_tokens=many"], "expected a whole number"),
        (["ckpt=x", "prompts=missing.txt"], "missing.txt: No such file"),
    ],
)
def test_generate_refuses_in_one_line(words, message):
    with pytest.raises(RequestError, match=re.escape(message)) as refusal:
        generate.main(words or ["prompt=x"])
    assert "\n" not in str(refusal.value)
