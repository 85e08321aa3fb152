"""Weights of a directory: the same logits, ties, shards; everything wrong with a file is named."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.hf.directories import directory
from txlab.core.errors import RequestError
from txlab.models import Decoder, hf
from txlab.train.weights import load_tensors

TOKENS = torch.randint(61, (2, 14), generator=torch.Generator().manual_seed(1))
FILE = "model.safetensors"


def loaded(folder: Path) -> Decoder:
    config = hf.model_config(folder)
    model = Decoder(config, config.dims())
    load_tensors(model, hf.weights(folder), str(folder))
    return model.eval()


@torch.no_grad()
def same_logits(ours: Decoder, theirs: Any) -> None:
    expected = theirs.float()(TOKENS).logits
    assert expected.std() > 0.1
    found = ours.logits(ours(TOKENS).states)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def rewrite(folder: Path, change: Any) -> None:
    tensors = load_file(folder / FILE)
    save_file(change(dict(tensors)) or tensors, folder / FILE, metadata={"format": "pt"})


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama tied": ("Llama", {"tie_word_embeddings": True, "head_dim": 12}),
    "mistral": ("Mistral", {"sliding_window": 4}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16, "rms_norm_eps": 1e-2, "tie_word_embeddings": True}),
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_equal_transformers(tmp_path: Path, name: str) -> None:  # ROPE-04
    family, fields = FAMILIES[name]
    theirs = directory(tmp_path, family, **fields)
    same_logits(loaded(tmp_path), theirs)


def test_tied_embeddings_are_one_tensor(tmp_path: Path) -> None:  # TIE-01
    theirs = directory(tmp_path, tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(tmp_path / FILE)
    ours = loaded(tmp_path)
    assert ours.head.weight is ours.embed.weight
    same_logits(ours, theirs)
    embed = "model.embed_tokens.weight"
    rewrite(tmp_path, lambda t: t | {"lm_head.weight": t[embed].clone()})
    same_logits(loaded(tmp_path), theirs)
    rewrite(tmp_path, lambda t: t | {"lm_head.weight": t[embed] + 1})
    with pytest.raises(RequestError, match=r'"tie_word_embeddings": false'):
        loaded(tmp_path)


def test_shards_and_half_precision(tmp_path: Path) -> None:
    theirs = directory(tmp_path / "whole").to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 2
    ours = loaded(tmp_path)
    assert ours.embed.weight.dtype == torch.float32
    assert torch.equal(ours.embed.weight, theirs.model.embed_tokens.weight.float())
    same_logits(ours, theirs)


def test_files_of_bare_bodies_and_tables_without_weights(tmp_path: Path) -> None:
    theirs = directory(tmp_path, "GPT2", n_embd=32, n_layer=2, n_head=2)
    mask = torch.ones(1, 1, 8, 8, dtype=torch.uint8)

    def bare(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        named = {k.removeprefix("transformer."): t for k, t in tensors.items()}
        return named | {"h.0.attn.bias": mask, "h.1.attn.masked_bias": torch.tensor(-1e4)}

    rewrite(tmp_path, bare)
    same_logits(loaded(tmp_path), theirs)


def test_all_that_differs_is_listed(tmp_path: Path) -> None:  # CKPT-07
    directory(tmp_path)

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors["model.norm.scale"] = tensors.pop("model.norm.weight")
        tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(32)
        tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(47, 32)
        del tensors["model.layers.2.self_attn.o_proj.weight"]
        return tensors

    rewrite(tmp_path, change)
    with pytest.raises(RequestError) as refusal:
        loaded(tmp_path)
    text = str(refusal.value)
    assert "missing: model.layers.2.self_attn.o_proj.weight, model.norm.weight" in text
    assert "extra: model.layers.0.self_attn.q_proj.bias, model.norm.scale" in text
    assert "model.layers.1.mlp.up_proj.weight [47, 32] (the config says [48, 32])" in text


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return open, (str(self.file), "w")


def test_pickled_weights_are_refused_unread(tmp_path: Path) -> None:  # CKPT-04
    directory(tmp_path)
    (tmp_path / FILE).unlink()
    marker = tmp_path / "marker"
    with open(tmp_path / "pytorch_model.bin", "wb") as stream:
        pickle.dump(Payload(marker), stream)
    with pytest.raises(RequestError, match=r"pickle only \(pytorch_model\.bin\).*safetensors"):
        hf.weights(tmp_path)
    assert not marker.exists()


def test_damaged_missing_and_foreign_files(tmp_path: Path) -> None:
    directory(tmp_path, shards="8KB")
    index = tmp_path / "model.safetensors.index.json"
    places = json.loads(index.read_text())
    names = sorted(set(places["weight_map"].values()))
    whole = (tmp_path / names[1]).read_bytes()
    (tmp_path / names[1]).write_bytes(whole[:-9])
    with pytest.raises(RequestError, match=f"{names[1]} cannot be read.*download it again"):
        hf.weights(tmp_path)
    (tmp_path / names[1]).unlink()
    with pytest.raises(RequestError, match=f"{names[1]} is missing.*download all files"):
        hf.weights(tmp_path)
    (tmp_path / names[1]).write_bytes(whole)
    places["weight_map"]["model.stray"] = names[0]
    index.write_text(json.dumps(places))
    with pytest.raises(RequestError, match=r"do not agree about model\.stray"):
        hf.weights(tmp_path)
    places["weight_map"]["model.stray"] = "../elsewhere.safetensors"
    index.write_text(json.dumps(places))
    with pytest.raises(RequestError, match=r"'\.\./elsewhere\.safetensors' is no name"):
        hf.weights(tmp_path)
    index.write_text("{}")
    with pytest.raises(RequestError, match="it has no weight_map"):
        hf.weights(tmp_path)
    index.unlink()
    with pytest.raises(RequestError, match="there are no weights"):
        hf.weights(tmp_path)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    directory(tmp_path)
    name = "model.layers.0.mlp.up_proj.weight"
    rewrite(tmp_path, lambda t: t | {name: t[name].to(torch.int8)})
    with pytest.raises(RequestError, match=rf"{name} is stored as I8; quantised"):
        hf.weights(tmp_path)
