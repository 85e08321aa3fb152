"""Weights as one plain file: every tensor under its name, loaded by those who know nothing else."""

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

import txlab
from tests.test_run import TEXT, TINY
from txlab.commands import export
from txlab.core.errors import RequestError
from txlab.run import train


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run, and one that trains an adapter on its weights."""
    there = tmp_path_factory.mktemp("export")
    (there / "text.txt").write_text(TEXT)
    words = [*TINY, f"data.path={there}/text.txt", f"data.cache_dir={there}/cache"]
    words += ["train.steps=2", "train.pictures=false", "train.sample=null", "train.val_every=1"]
    train(txlab.compose([*words, f"run_dir={there}/run", "train.keep_best=1"]))
    words = [word for word in words if not word.startswith(("model.", "tokenizer."))]
    start = [f"model.init_from={there}/run", "adapter=lora", "optim.lr=0.1"]
    train(txlab.compose([*words, *start, f"run_dir={there}/lora"]))
    return there


def test_a_file_holds_every_tensor_by_name(home, tmp_path, capsys):
    file = tmp_path / "w.safetensors"
    assert export.main([f"ckpt={home}/run", str(file)]) == 0
    assert f"exported to {file}, 11 tensors in float32" in capsys.readouterr().out
    model = txlab.load(home / "run")
    found = load_file(file)
    own = dict(model.named_parameters())  # a tied tensor once
    assert found.keys() == own.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in own.items())
    with safe_open(file, "pt") as stream:
        config = yaml.safe_load(stream.metadata()["config"])
    assert config["model"]["dim"] == 16
    fresh = txlab.build(txlab.compose([*TINY[:4], "model.vocab_size=300"]))
    missing = fresh.load_state_dict(found, strict=False)
    assert missing.missing_keys == ["head.weight"]  # which is the embedding's own
    tokens = torch.arange(8)[None]
    assert torch.equal(model(tokens).states, fresh.eval()(tokens).states)
    best = tmp_path / "best.safetensors"
    assert export.main([f"ckpt={home}/run/best", str(best), "dtype=bfloat16"]) == 0
    assert {tensor.dtype for tensor in load_file(best).values()} == {torch.bfloat16}


def test_an_adapter_is_worked_in_or_stays_beside(home, tmp_path):
    merged, beside = tmp_path / "merged.safetensors", tmp_path / "beside.safetensors"
    export.main([f"ckpt={home}/lora", str(merged)])
    export.main([f"ckpt={home}/lora", str(beside), "merge=false"])
    base, one, two = (
        load_file(home / "run/checkpoints/step-000002/weights.safetensors"),
        *map(load_file, (merged, beside)),
    )
    assert one.keys() == base.keys()
    assert any(not torch.equal(one[name], tensor) for name, tensor in base.items())
    assert all(torch.equal(two[name], tensor) for name, tensor in base.items())
    assert all(name.startswith("adapter.") for name in two.keys() - base.keys())
    assert len(two) > len(base)


def test_wrong_requests(home, tmp_path):
    (tmp_path / "there.safetensors").touch()
    with pytest.raises(RequestError, match=r"there\.safetensors exists"):
        export.main([f"ckpt={home}/run", str(tmp_path / "there.safetensors")])
    with pytest.raises(RequestError, match="merge=false is for a file"):
        export.main([f"ckpt={home}/run", str(tmp_path / "folder"), "merge=false"])
    with pytest.raises(
        RequestError, match=r"model\.bin: export writes a folder, or a file that ends"
    ):
        export.main([f"ckpt={home}/run", str(tmp_path / "model.bin")])
    assert not (tmp_path / "model.bin").exists()
