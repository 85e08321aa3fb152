"""Directories that we write: read by transformers, read again bit by bit, refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.models.hf.directories import directory
from tests.models.hf.test_directory import FAMILIES, TOKENS, loaded, same_logits
from tests.models.hf.tokenizers import TEMPLATE, add_tokenizer
from txlab.core.errors import RequestError
from txlab.data.tokenizer import BPE, Pretrained
from txlab.models import Decoder, hf
from txlab.models.hf.describe import describe
from txlab.models.hf.mapping import interleave
from txlab.nn.attention import GQA, MHA, MQA
from txlab.nn.ffn import MLP, MoE, SwiGLU
from txlab.nn.norm import LayerNorm, RMSNorm
from txlab.nn.pattern import Pattern
from txlab.nn.position import Learned, NoPosition, RoPE
from txlab.nn.residual import Parallel


@pytest.mark.parametrize("name", FAMILIES)
def test_round_trip_is_bit_exact(tmp_path: Path, name: str) -> None:  # ROPE-04
    family, fields = FAMILIES[name]
    theirs = directory(tmp_path / "theirs", family, **fields)
    ours = loaded(tmp_path / "theirs")
    assert hf.export(ours, None, tmp_path / "again") == family.lower()
    before = load_file(tmp_path / "theirs" / "model.safetensors")
    after = load_file(tmp_path / "again" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    same_logits(ours, AutoModelForCausalLM.from_pretrained(tmp_path / "again").eval())
    assert hf.model_config(tmp_path / "again").attn == hf.model_config(tmp_path / "theirs").attn
    same_logits(loaded(tmp_path / "again"), theirs)


@torch.no_grad()
@pytest.mark.parametrize("biased", [False, True])
def test_interleaved_pairs_become_halves(tmp_path: Path, biased: bool) -> None:  # ROPE-04
    family, fields = FAMILIES["llama" if biased else "qwen3"]
    directory(tmp_path / "theirs", family, **fields)
    halves = loaded(tmp_path / "theirs")
    config = hf.model_config(tmp_path / "theirs")
    assert isinstance(config.pos, RoPE.Config)
    config.pos.interleaved = True
    ours = Decoder(config, config.dims()).eval()
    ours.load_state_dict(interleave(halves.state_dict(), ours.dims.head_dim))
    hf.export(ours, None, tmp_path / "again")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "again").eval()
    # Position 0 does not turn, so only later ones tell the layouts apart.
    assert TOKENS.shape[1] > 5
    same_logits(ours, theirs)
    before = load_file(tmp_path / "theirs" / "model.safetensors")
    after = load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())


TINY: dict[str, Any] = {"dim": 32, "n_layers": 2, "n_heads": 4, "context": 32, "vocab_size": 61}
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "defaults": ("llama", {}),
    "mha": ("llama", {"attn": MHA.Config(), "tie_embeddings": False}),
    "mqa, window": ("mistral", {"attn": MQA.Config(window=5), "head_dim": 6}),
    "windows": (
        "qwen2",
        {
            "attn": GQA.Config(qkv_bias=True),
            "pattern": Pattern(attn=["gqa", {"name": "gqa", "window": 3}]),
        },
    ),
    "normed heads": ("qwen3", {"attn": GQA.Config(qk_norm=True), "ffn": SwiGLU.Config(hidden=40)}),
    "gpt2": (
        "gpt2",
        {
            "attn": MHA.Config(qkv_bias=True, out_bias=True),
            "pos": Learned.Config(),
            "norm": LayerNorm.Config(),
            "ffn": MLP.Config(bias=True),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_models_of_our_own_making(tmp_path: Path, name: str) -> None:
    family, fields = OWN[name]
    config = Decoder.Config(**TINY, **fields)
    torch.manual_seed(0)
    ours = Decoder(config, config.dims()).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    assert hf.export(ours, None, tmp_path / "out") == family
    same_logits(ours, AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval())
    for key, tensor in loaded(tmp_path / "out").state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[key])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attn": GQA.Config(softcap=30.0)}, "softcap=30.0"),
        ({"pos": RoPE.Config(partial=0.5)}, "model.pos=rope(theta=10000.0, "),
        ({"pos": NoPosition.Config()}, "model.pos=none()"),
        ({"norm": RMSNorm.Config(affine=False)}, "affine=False"),
        ({"ffn": MLP.Config()}, "model.ffn=mlp(hidden=128, bias=False, activation=gelu)"),
        ({"ffn": MoE.Config()}, "model.ffn=moe(hidden=None, bias=False, n_experts=8"),
        ({"pattern": Pattern(ffn=["swiglu", "moe"])}, "model.pattern.ffn=['swiglu', 'moe']"),
        ({"residual": Parallel.Config()}, "model.residual=parallel(layer_scale=None"),
        ({"attn": GQA.Config(out_bias=True)}, "qkv_bias=False, out_bias=True"),
        ({"attn": GQA.Config(qk_norm=True, qk_norm_eps=1e-3)}, "qk_norm_eps=0.001"),
        ({"pattern": Pattern(ffn=["mlp", "swiglu"])}, "model.pattern.ffn=['mlp', 'swiglu']"),
    ],
)
def test_what_no_family_has_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match="cannot express") as refusal:
        describe(Decoder.Config(**TINY, **fields))
    assert message in str(refusal.value)


def small(vocab_size: int) -> Decoder:
    config = Decoder.Config(**{**TINY, "vocab_size": vocab_size})
    return Decoder(config, config.dims()).eval()


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    add_tokenizer(tmp_path / "theirs", adds_bos=True)
    first = Pretrained.load(tmp_path / "theirs")
    hf.export(small(first.vocab_size), first, tmp_path / "out", torch.bfloat16)
    theirs, again = (
        AutoTokenizer.from_pretrained(tmp_path / "out"),
        Pretrained.load(tmp_path / "out"),
    )
    for text in ("a  b\n", "naïve 日本", ""):
        assert theirs.encode(text) == [first.bos_id, *first.encode(text)]
    for name in ("bos_id", "eos_id", "pad_id", "end_ids", "template", "control", "fingerprint"):
        assert getattr(again, name) == getattr(first, name), name
    assert theirs.chat_template == TEMPLATE
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (described["dtype"], described["eos_token_id"]) == ("bfloat16", 2)


def test_a_tokenizer_of_our_own(tmp_path: Path) -> None:
    ours = BPE(BPE.Config(vocab_size=300))
    ours.train(["some text to learn from, some more text"] * 3)
    hf.export(small(ours.vocab_size), ours, tmp_path / "out")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "some text\n and émore"
    assert theirs.encode(text) == [ours.bos_id, *ours.encode(text)]
    assert theirs.decode(ours.encode(text)) == text
    assert (theirs.eos_token_id, theirs.pad_token_id) == (ours.eos_id, ours.pad_id)
    again = Pretrained.load(tmp_path / "out")
    assert (again.bos_id, again.end_ids, again.template) == (0, ours.end_ids, ours.template)
    assert set(load_file(tmp_path / "out" / "model.safetensors")) >= {"model.norm.weight"}


def test_nothing_is_written_over_or_left_behind(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(RequestError, match="exists: name a folder"):
        hf.export(small(61), None, tmp_path / "out")
    model = small(61)
    model.config.attn = GQA.Config(softcap=1.0)
    with pytest.raises(RequestError, match="cannot express"):
        hf.export(model, None, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
