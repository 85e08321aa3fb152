"""Runs with an adapter and with a reference: what is saved, found again, refused, resumed."""

import csv
import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import txlab
from tests.train.tiny_run import unsealed
from txlab.commands.merge import merge
from txlab.core.errors import RequestError, RunError
from txlab.loading import inherited, load
from txlab.models import hf
from txlab.nn.adapter import adapter_of
from txlab.run import train
from txlab.train import checkpoint
from txlab.train.module import TrainModule

SIZES = [
    *("model.dim=16", "model.n_layers=1", "model.n_heads=2", "model.context=48"),
    *("model.dropout=0.1", "tokenizer.vocab_size=300"),
]
TINY = [
    *("trainer=cpu", "data.batch_size=4", "data.micro_batch_size=2", "data.n_train=60"),
    *("data.n_val=12", "train.sample=null", "train.log_every=1", "optim.lr=0.01"),
]
LORA = ["adapter=lora", "adapter.r=2", "adapter.dropout=0.1"]
TIMES = ("tokens_per_s", "mfu")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a run `base` in it."""
    folder = tmp_path_factory.mktemp("adapters")
    go(folder, "base", "data=chat", *SIZES, "train.steps=2")
    return folder


@pytest.fixture
def there(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def go(there, name, *words):
    """A run as the command line makes it."""
    words = [*TINY, f"data.cache_dir={there / 'cache'}", f"run_dir={there / name}", *words]
    config, _ = inherited(txlab.compose(words), list(words))
    return train(config)


def start(there, data="chat", *more):
    objective = ["objective=dpo"] if data == "pairs" else []
    return [f"data={data}", f"model.init_from={there / 'base'}", *objective, *more]


def last(there, name):
    return checkpoint.find(there / name)


def logits(model):
    with torch.no_grad():
        return model.logits(model(torch.arange(20).view(2, 10)).states)


def rows(there, name):
    with (there / name / "metrics.csv").open() as stream:
        return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(stream)]


def test_an_adapter_alone_is_saved_and_its_base_found_again(there, capsys):
    result = go(there, "tuned", *start(there), *LORA, "train.steps=3")
    out = capsys.readouterr().out
    assert "adapter     lora on 7 linears (q 1, k 1, v 1, o 1, gate 1, up 1, down 1)" in out
    found = last(there, "tuned")
    assert not found.has(checkpoint.WEIGHTS)
    assert found.has(checkpoint.ADAPTER)
    named = json.loads((found.path / "origin.json").read_text())
    assert named["path"] == str(last(there, "base").path)
    merged, beside, base = load(found.path), load(found.path, merge=False), load(there / "base")
    assert adapter_of(merged) is None
    assert list(merged.state_dict()) == list(base.state_dict())
    torch.testing.assert_close(logits(merged), logits(beside), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits(merged), logits(base), atol=1e-3)
    own = adapter_of(beside)
    with own.off(beside):
        assert torch.equal(logits(beside), logits(base))
    assert merged.tokenizer.vocab_size == base.tokenizer.vocab_size
    assert result["val/loss"] > 0


def test_a_changed_or_missing_base_is_refused(there):
    go(there, "tuned", *start(there), *LORA, "train.steps=1")
    (there / "base").rename(there / "moved")
    with pytest.raises(RequestError, match=r"no longer at .*base.*write their new place"):
        load(there / "tuned")
    file = last(there, "tuned").path / "origin.json"
    origin = json.loads(file.read_text())
    new = last(there, "moved").path
    file.write_text(json.dumps({**origin, "path": str(Path("../../..") / new.relative_to(there))}))
    load(there / "tuned")
    tensors = checkpoint.Checkpoint(new).weights()
    name = next(iter(tensors))
    tensors[name].view(-1)[0] += 1e-6 + tensors[name].view(-1)[0].abs()
    checkpoint.save_tensors(tensors, new / checkpoint.WEIGHTS)
    unsealed(new)
    with pytest.raises(RequestError, match="are not those that it was trained from"):
        load(there / "tuned")


def test_an_adapter_that_does_not_fit_is_refused_with_all_that_differs(there):
    """CKPT-07: one renamed, one missing, one extra, one of the wrong shape."""
    go(there, "tuned", *start(there), *LORA, "train.steps=1")
    found = last(there, "tuned")
    tensors, layer = found.adapter(), "layers.0.ffn"
    at = {part: f"{layer}.{part}.lora_A.weight" for part in ("up", "down")}
    assert set(at.values()) < set(tensors)
    tensors["elsewhere.lora_A.weight"] = tensors.pop(at["down"])
    del tensors[f"{layer}.up.lora_B.weight"]
    tensors["layers.9.attn.q.lora_A.weight"] = torch.zeros(7, 7)
    tensors[at["up"]] = torch.zeros(3, 16)
    checkpoint.save_tensors(tensors, found.path / checkpoint.ADAPTER)
    unsealed(found.path)
    with pytest.raises(RequestError) as refusal:
        load(there / "tuned")
    for said in (
        f"renamed: {at['down']} (in the file as elsewhere.lora_A.weight)",
        f"missing: {layer}.up.lora_B.weight",
        "extra: layers.9.attn.q.lora_A.weight",
        f"wrong shape: {at['up']} [3, 16] (the model has [2, 16])",
    ):
        assert said in str(refusal.value)


def test_a_fresh_model_with_an_adapter_saves_its_base_as_well(there):
    go(there, "fresh", "data=chat", *SIZES, *LORA, "train.steps=2")
    found = last(there, "fresh")
    assert found.has(checkpoint.WEIGHTS)
    assert found.has(checkpoint.ADAPTER)
    assert not found.has(checkpoint.ORIGIN)
    again = go(there, "fresh", "data=chat", *SIZES, *LORA, "train.steps=3", "resume=auto")
    assert again["step"] == 3
    load(found.path)


def test_an_adapter_on_an_adapted_run(there):
    go(there, "one", *start(there), *LORA, "train.steps=2")
    words = [w.replace(str(there / "base"), str(there / "one")) for w in start(there)]
    go(there, "two", *words, *LORA, "train.steps=1", "optim.lr=1e-12")
    torch.testing.assert_close(
        logits(load(there / "two")), logits(load(there / "one")), rtol=1e-4, atol=1e-4
    )
    go(there, "three", *words, "train.steps=1", "optim.lr=1e-12")  # and a plain one
    assert not last(there, "three").has(checkpoint.ADAPTER)


def test_merge_writes_a_plain_checkpoint_that_needs_nothing_else(there):
    go(there, "tuned", *start(there), *LORA, "train.steps=2")
    expected = logits(load(there / "tuned"))
    merge(there / "tuned", there / "plain")
    with pytest.raises(RequestError, match="exists"):
        merge(there / "tuned", there / "plain")
    with pytest.raises(RequestError, match="has no adapter"):
        merge(there / "base", there / "other")
    for name in ("base", "tuned"):
        shutil.rmtree(there / name)
    plain = load(there / "plain")
    assert torch.equal(logits(plain), expected)
    hf.export(plain, plain.tokenizer, there / "theirs")
    theirs = AutoModelForCausalLM.from_pretrained(there / "theirs").eval()
    with torch.no_grad():
        found = theirs(torch.arange(20).view(2, 10)).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    words = [w.replace(str(there / "base"), str(there / "plain")) for w in start(there)]
    go(there, "next", *words, "train.steps=1")


@pytest.mark.parametrize("adapter", [[], LORA])
@pytest.mark.parametrize("data", ["chat", "pairs"])
def test_resumed_runs_equal_unbroken_ones(there, monkeypatch, data, adapter):
    """Bit by bit, with an adapter, a reference, both; the reference is the one of the start."""
    words = [*start(there, data), *adapter, "train.val_every=2", "schedule.warmup=2"]
    go(there, "whole", *words, "train.steps=6")
    finish = TrainModule._finish_step

    def stop(self):
        finish(self)
        if self.counters.step == 4:
            raise KeyError

    with monkeypatch.context() as patch:
        patch.setattr(TrainModule, "_finish_step", stop)
        with pytest.raises(KeyError):
            go(there, "cut", *words, "train.steps=6", "train.save_every=3")
    go(there, "cut", *words, "train.steps=6", "resume=auto")
    assert rows(there, "whole") == rows(there, "cut")
    one, two = last(there, "whole"), last(there, "cut")
    name = "adapter" if adapter else "weights"
    before, after = getattr(one, name)(), getattr(two, name)()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("adapter", [[], LORA])
def test_dpo_starts_at_ln_2_and_is_evaluated_as_it_was_validated(there, adapter, capsys):
    from txlab.commands.evaluate import main as evaluate

    words = [*start(there, "pairs"), *adapter, "train.steps=3"]
    result = go(there, "dpo", *words)
    first = rows(there, "dpo")[0]
    assert float(first["train/loss"]) == pytest.approx(math.log(2), abs=1e-6)
    assert float(first["train/margin"]) == 0
    assert result["val/perplexity"] is None
    assert result["val/bits_per_byte"] is None
    names = {"margin", "accuracy", "rewards/chosen", "rewards/rejected"}
    assert names <= set(result["metrics"])
    capsys.readouterr()
    evaluate([f"ckpt={there / 'dpo'}"])
    said = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(said["val/loss"]) == pytest.approx(result["val/loss"], abs=1e-4)
    assert float(said["val/accuracy"]) == pytest.approx(result["metrics"]["accuracy"], abs=1e-4)


def test_dpo_needs_pairs_and_a_resumed_one_its_reference(there):
    with pytest.raises(RequestError, match="objective=dpo is for pairs of rows"):
        go(there, "wrong", *start(there), "objective=dpo", "train.steps=1")
    with pytest.raises(RequestError, match="objective=next_token is for single rows"):
        go(there, "wrong", *start(there, "pairs"), "objective=next_token", "train.steps=1")
    assert not (there / "wrong").exists()
    words = start(there, "pairs")
    go(there, "dpo", *words, "train.steps=1")
    file = last(there, "dpo").path / "origin.json"
    file.write_text(file.read_text().replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(RequestError, match="are not those that it was trained from"):
        go(there, "dpo", *words, "train.steps=2", "resume=auto")


def test_what_is_left_out_is_counted_at_the_start(there, capsys):
    sides = [("yes", "no"), ("", "no"), ("yes", " "), ("same", "same"), ("yes", "no")]
    pairs = [{"prompt": str(n), "chosen": c, "rejected": r} for n, (c, r) in enumerate(sides)]
    pairs.append({"prompt": "long " * 50, "chosen": "yes", "rejected": "no"})
    (there / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    words = [*start(there, "pairs"), f"data.path={there / 'pairs.jsonl'}", "data.val_fraction=0"]
    go(there, "dpo", *words, "train.steps=1")
    said = capsys.readouterr().out.splitlines()
    assert "dropped     2 empty side, 1 equal sides, 1 prompt too long; of 6 items" in said


def test_a_step_without_any_gradient_ends_the_run(there, monkeypatch):
    """LORA-04: the graph is cut between the loss and what trains."""
    from txlab.nn.adapter.injected import layers

    def cut(self, micro_batches, batch_idx, step=TrainModule.training_step):
        with torch.no_grad():
            for layer in layers(self.model).values():
                layer.lora_B["default"].weight.zero_()
                layer.lora_A["default"].weight.zero_()
        step(self, micro_batches, batch_idx)

    monkeypatch.setattr(TrainModule, "training_step", cut)
    with pytest.raises(RunError, match="no trained parameter has a gradient"):
        go(there, "dead", *start(there), *LORA, "train.steps=1")


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
@pytest.mark.parametrize("adapter", [[], LORA])
def test_compiled_dpo_starts_at_ln_2(there, monkeypatch, adapter):
    monkeypatch.setenv("TXLAB_COMPILE_BACKEND", "aot_eager")
    words = [*start(there, "pairs"), *adapter, "train.steps=2"]
    go(there, "plain", *words)
    go(there, "compiled", *words, "train.compile=true")
    losses = [[float(r["train/loss"]) for r in rows(there, n)] for n in ("plain", "compiled")]
    assert losses[1][0] == pytest.approx(math.log(2), abs=1e-6)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
