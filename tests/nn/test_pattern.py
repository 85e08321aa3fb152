"""Options that change from layer to layer."""

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.models import Decoder
from txlab.nn.attention import GQA, MHA, attention
from txlab.nn.ffn import MLP, SwiGLU
from txlab.nn.pattern import Pattern, layer_configs
from txlab.nn.position import NoPosition, RoPE
from txlab.testing.tiny import DIMS, model, tokens

WINDOWED = ["mha", {"name": "gqa", "window": 4}]


def test_entries_are_cycled_over_the_depth() -> None:
    base = GQA.Config()
    found = layer_configs(attention, WINDOWED, base, 5)
    assert [config.name for config in found] == ["mha", "gqa", "mha", "gqa", "mha"]
    assert [config.window for config in found] == [None, 4, None, 4, None]
    assert layer_configs(attention, [], base, 3) == [base] * 3


def test_an_entry_takes_over_the_fields_it_does_not_set() -> None:
    base = GQA.Config(n_kv_heads=2, qkv_bias=True, window=8, softcap=30.0)
    mha, gqa = layer_configs(attention, WINDOWED, base, 2)
    assert isinstance(mha, MHA.Config)
    assert (mha.qkv_bias, mha.window, mha.softcap) == (True, 8, 30.0)
    assert isinstance(gqa, GQA.Config)
    assert (gqa.n_kv_heads, gqa.qkv_bias, gqa.window, gqa.softcap) == (2, True, 4, 30.0)
    off = layer_configs(attention, [{"name": "gqa", "window": None}], base, 1)[0]
    assert off.window is None
    assert base.window == 8


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "gqa", "windw": 4}, r"field 'windw' of model.attn=gqa. Did you mean window"),
        ("gqq", r"option 'gqq' of model.attn. Did you mean .*gqa"),
        ({"window": 4}, "option 'None' of model.attn"),
        ({"name": "gqa", "window": "wide"}, "model.attn=gqa: .*wide"),
        ({"name": "gqa", "window": 0}, "window=0"),
        ({"name": "gqa", "qk_norm": 2}, "qk_norm=2: expected true or false"),
    ],
)
def test_entries_that_mean_nothing_are_refused(entry: object, message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        layer_configs(attention, ["mha", entry], GQA.Config(), 2)
    assert str(error.value).startswith(f"model.pattern.attn, entry 2 ({entry}): ")


def test_a_model_mixes_attentions_feed_forwards_and_positions() -> None:
    decoder = model(
        attn=GQA.Config(qkv_bias=True),
        pattern=Pattern(attn=WINDOWED, ffn=["mlp", "swiglu"], pos=["none", "rope"]),
    )
    kinds = [(type(b.attn), type(b.ffn)) for b in decoder.layers]
    assert kinds == [(MHA, MLP), (GQA, SwiGLU)]
    assert [b.attn.window for b in decoder.layers] == [None, 4]
    assert decoder.layers[0].attn.k.weight.shape == (32, 32)
    assert decoder.layers[1].attn.k.bias.shape == (8,)
    assert isinstance(decoder.pos, RoPE)
    assert [type(p) for p in decoder.layer_pos] == [NoPosition, RoPE]
    ids = tokens(2, 9)
    with torch.no_grad():
        whole = decoder(ids).states
        cache = decoder.new_cache(2, 9)
        parts = [decoder(part, cache=cache).states for part in ids.split((4, 1, 1, 3), 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)
    assert set(decoder.state_dict()) == set(Decoder(decoder.config, DIMS).state_dict())


def test_a_layer_without_rotation_reads_other_scores() -> None:
    plain, mixed = model(), model(pattern=Pattern(pos=["rope", "none"]))
    mixed.load_state_dict(plain.state_dict())
    ids = tokens(1, 6)
    assert not torch.allclose(plain(ids).states[:, 1:], mixed(ids).states[:, 1:], atol=1e-3)
    same = model(pattern=Pattern(pos=["rope"]))
    same.load_state_dict(plain.state_dict())
    assert torch.equal(plain(ids).states, same(ids).states)


@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_what_is_added_to_embeddings_is_no_choice_of_a_layer(name: str) -> None:
    with pytest.raises(RequestError, match=rf"model\.pattern\.pos: {name}.*model\.pos={name}"):
        model(pattern=Pattern(pos=["rope", name]))
