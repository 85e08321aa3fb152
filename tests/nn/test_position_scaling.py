"""Scaled rotary frequencies against transformers' functions, and cases of others' bugs."""

from types import SimpleNamespace

import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.core.slot import slot_at
from txlab.nn.pattern import Pattern
from txlab.nn.position import RoPE
from txlab.nn.position.scaling import Scaling, attention_factor, scaled_frequencies
from txlab.testing import tiny
from txlab.testing.harness import Status, Subject, checks, judge

CPU = torch.device("cpu")
SHORT, LONG = [1.0 + i / 10 for i in range(4)], [2.0 + i for i in range(4)]
FIELDS = {
    "linear": {"factor": 4.0},
    "ntk": {"factor": 4.0},
    "dynamic": {"factor": 2.0, "original_context": 8},
    "yarn": {"factor": 4.0, "original_context": 64},
    "llama3": {"factor": 8.0, "original_context": 64},
    "longrope": {"original_context": 8, "short_factors": SHORT, "long_factors": LONG},
}
"""Fields of each scheme for heads of 8 channels at a context of 16 and more."""


def theirs(kind: str, channels: int, context: int, **parameters) -> tuple[torch.Tensor, float]:
    """transformers' frequencies and attention factor."""
    config = SimpleNamespace(
        head_dim=channels,
        hidden_size=channels,
        num_attention_heads=1,
        max_position_embeddings=context,
        rope_parameters={"rope_theta": 10000.0, "rope_type": kind, **parameters},
        standardize_rope_params=lambda: None,
    )
    return ROPE_INIT_FUNCTIONS[kind](config, CPU, seq_len=context)


def equal(config: RoPE.Config, expected: tuple[torch.Tensor, float], n: int, context: int) -> None:
    frequencies = scaled_frequencies(config, n, context, CPU)
    torch.testing.assert_close(frequencies, expected[0], rtol=5e-6, atol=0)
    assert frequencies.dtype == torch.float32
    assert attention_factor(config, context) == pytest.approx(expected[1], rel=1e-7)


@pytest.mark.parametrize("channels", [8, 64, 128])
@pytest.mark.parametrize("factor", [1.5, 4.0, 32.0])
@pytest.mark.parametrize("theta", [1e4, 5e5])
def test_equals_transformers(channels, factor, theta):
    base = {"rope_theta": theta, "factor": factor}
    old = {"original_max_position_embeddings": 512}
    given = {"theta": theta, "factor": factor, "original_context": 512}
    linear = RoPE.Config(scaling=Scaling.linear, theta=theta, factor=factor)
    equal(linear, theirs("linear", channels, 512, **base), channels, 512)
    yarn = RoPE.Config(scaling=Scaling.yarn, **given)
    equal(yarn, theirs("yarn", channels, 4096, **base, **old), channels, 4096)
    borders = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3 = RoPE.Config(scaling=Scaling.llama3, **given)
    equal(llama3, theirs("llama3", channels, 4096, **base, **old, **borders), channels, 4096)
    betas = {"beta_fast": 20.0, "beta_slow": 2.0}
    yarn = RoPE.Config(scaling=Scaling.yarn, **given, **betas)
    equal(yarn, theirs("yarn", channels, 4096, **base, **old, **betas), channels, 4096)
    borders = {"low_freq_factor": 2.0, "high_freq_factor": 5.0}
    llama3 = RoPE.Config(scaling=Scaling.llama3, **given, **borders)
    equal(llama3, theirs("llama3", channels, 4096, **base, **old, **borders), channels, 4096)


@pytest.mark.parametrize("context", [513, 2048])
def test_dynamic_equals_transformers_for_an_input_as_long_as_the_context(context):
    config = RoPE.Config(scaling=Scaling.dynamic, factor=2.0, original_context=512)
    peer = SimpleNamespace(
        head_dim=64,
        hidden_size=64,
        num_attention_heads=1,
        max_position_embeddings=512,
        rope_parameters={"rope_theta": 10000.0, "factor": 2.0},
        standardize_rope_params=lambda: None,
    )
    equal(config, ROPE_INIT_FUNCTIONS["dynamic"](peer, CPU, seq_len=context), 64, context)


@pytest.mark.parametrize(("context", "factors"), [(512, SHORT), (2048, LONG)])
def test_longrope_takes_the_list_of_the_context(context, factors):
    lists = {"short_factors": SHORT, "long_factors": LONG}
    config = RoPE.Config(scaling=Scaling.longrope, original_context=512, **lists)
    expected = theirs(
        "longrope",
        *(8, context),
        short_factor=SHORT,
        long_factor=LONG,
        original_max_position_embeddings=512,
    )
    equal(config, expected, 8, context)
    divided = 1e4 ** -(torch.arange(0, 8, 2) / 8) / torch.tensor(factors)
    torch.testing.assert_close(scaled_frequencies(config, 8, context, CPU), divided)


def test_ntk_divides_the_slowest_pair_and_leaves_the_fastest():
    config = RoPE.Config(scaling=Scaling.ntk, factor=4.0)
    plain = scaled_frequencies(RoPE.Config(), 64, 512, CPU)
    ratio = plain / scaled_frequencies(config, 64, 512, CPU)
    assert ratio[0].item() == 1.0
    assert ratio[-1].item() == pytest.approx(4.0, rel=1e-5)
    assert bool((ratio.diff() > 0).all())


@pytest.mark.parametrize(
    ("extra", "factor"),
    [({}, 1.138629), ({"attention_factor": 1.0}, 1.0), ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1)],
)
def test_yarn_keeps_its_factor_beside_the_original_length(extra, factor):
    """Case ROPE-01: base 10000, 64 channels, factor 4, original length 2048."""
    config = RoPE.Config(scaling=Scaling.yarn, factor=4.0, original_context=2048, **extra)
    found = scaled_frequencies(config, 64, 8192, CPU)[[0, 8, 16, 24, 31]]
    expected = [1, 0.1, 0.005384615, 2.5e-4, 3.333804e-5]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)
    assert attention_factor(config, 8192) == pytest.approx(factor, abs=1e-6)


def test_the_attention_factor_is_applied_once_to_each_of_query_and_key():
    dims = Dims(dim=64, n_heads=1, head_dim=64, n_layers=1, context=8192, vocab_size=9)
    rope = RoPE(RoPE.Config(scaling=Scaling.yarn, factor=4.0, original_context=2048), dims)
    partial = RoPE(
        RoPE.Config(scaling=Scaling.yarn, factor=4.0, original_context=2048, partial=0.5), dims
    )
    x = tiny.floats(1, 1, 5, 64)
    positions = torch.arange(5)[None]
    q, k = rope.rotate(x, x, rope.prepare(positions))
    torch.testing.assert_close(q.norm(dim=-1), x.norm(dim=-1) * 1.138629)
    assert torch.equal(q, k)
    one, _ = rope.rotate(x[:, :, 3:4], x[:, :, 3:4], rope.prepare(positions[:, 3:4]))
    torch.testing.assert_close(one[:, :, 0], q[:, :, 3])
    q, _ = partial.rotate(x, x, partial.prepare(positions))
    assert torch.equal(q[..., 32:], x[..., 32:])
    torch.testing.assert_close(q[..., :32].norm(dim=-1), x[..., :32].norm(dim=-1) * 1.138629)


@pytest.mark.parametrize("scaling", FIELDS)
def test_a_cast_model_keeps_float32_angles(scaling):
    """Case ROPE-03, for each scaling."""
    dims = Dims(dim=8, n_heads=1, head_dim=8, n_layers=1, context=4096, vocab_size=9)
    built = RoPE(RoPE.Config(scaling=Scaling(scaling), **FIELDS[scaling]), dims)
    positions = torch.arange(4096)[None]
    exact = built.prepare(positions)
    cast = built.bfloat16()
    assert not list(cast.buffers())
    with torch.autocast("cpu", torch.bfloat16):
        angles = cast.prepare(positions)
    assert all(torch.equal(x, y) for x, y in zip(angles, exact, strict=True))


KEPT = (
    *("decodes_in_any_chunks", "decodes_uneven_rows", "config_survives_saving"),
    *("shift_invariant", "restarts_with_documents", "padding_takes_no_position"),
    *("exact_in_bfloat16", "says_where_it_ends", "works_inside_attention"),
)


@pytest.mark.parametrize("scaling", FIELDS)
def test_keeps_the_contract(scaling):
    """Chunked decoding equals the full pass, packed equals separate ... with each scaling."""
    slot = slot_at("model.pos")
    fields = {"scaling": Scaling(scaling), **FIELDS[scaling]}
    subject = Subject(slot, slot.option("rope"), tuple(fields.items()))
    for name in KEPT:
        result = judge(subject, checks()[name])
        assert result.status is Status.passed, f"{name}: {result.detail}"


def test_layers_may_turn_at_their_own_theta():
    """As in Gemma 3: local layers at one theta, global ones at another and scaled."""
    local = {"name": "rope", "theta": 100.0}
    globe = {"name": "rope", "theta": 1e6, "scaling": "linear", "factor": 8.0}
    pattern = Pattern(pos=[local, globe])
    model = tiny.model(pos=RoPE.Config(partial=0.5), pattern=pattern)
    for layer, theta, factor in ((0, 100.0, 1.0), (1, 1e6, 8.0)):
        scheme = model.layers._parts[model.layers.groups[layer]][0]
        found = scaled_frequencies(scheme.config, scheme.channels, 32, CPU)
        assert scheme.channels == 4  # what an entry leaves open is model.pos's
        assert found.tolist() == pytest.approx([1 / factor, theta**-0.5 / factor])
    tokens = tiny.tokens(1, 12)
    cache = model.new_cache(1, 12)
    parts = [model(part, cache=cache).states for part in tokens.split((5, 1, 6), 1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(tokens).states, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"factor": 2.0}, "factor=2.0.*scaling=linear"),
        ({"scaling": "linear"}, "factor=None"),
        ({"scaling": "linear", "factor": 2.0, "original_context": 9}, "original_context=9"),
        ({"scaling": "yarn", "factor": 0.5}, "factor=0.5"),
        ({"scaling": "yarn", "factor": 2.0, "beta_fast": 0.5}, "beta_fast"),
        ({"scaling": "yarn", "factor": 2.0, "mscale": 1.0}, "mscale_all_dim"),
        ({"scaling": "llama3", "factor": 2.0, "low_freq_factor": 9.0}, "high_freq_factor"),
        ({"scaling": "longrope", "original_context": 8}, "short_factors"),
        ({"scaling": "dynamic", "factor": 2.0, "original_context": 32}, "context=32"),
        ({**FIELDS["longrope"], "scaling": "longrope", "partial": 0.5}, "4 numbers, and 2 pairs"),
        ({"scaling": "ntk", "factor": 2.0, "partial": 0.25}, "4 channels"),
        ({"scaling": "ntk", "factor": 2.0, "theta": 1.0}, "theta=1.0"),
    ],
)
def test_what_has_no_meaning_is_refused(fields, said):
    fields = {**fields, "scaling": Scaling(fields.get("scaling", "none"))}
    with pytest.raises(RequestError, match=said):
        RoPE(RoPE.Config(**fields), tiny.DIMS)
