"""Random decoders of transformers, their weights copied over: the same logits everywhere."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from tests.parity.mapping import twin
from txlab.models import Decoder
from txlab.models.hf.mapping import interleave, table_of
from txlab.models.hf.weights import Weights

transformers.logging.set_verbosity_error()
VOCAB, LENGTH = 61, 12
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "bos_token_id": None,
    "eos_token_id": None,
    "attn_implementation": "eager",
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 32}),
    "gpt2 inner": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 40}),
    "llama": ("Llama", {"num_key_value_heads": 4, "tie_word_embeddings": False}),
    "llama gqa tied": ("Llama", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "llama mqa head_dim": ("Llama", {"num_key_value_heads": 1, "head_dim": 12}),
    "llama biases": ("Llama", {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True}),
    "llama theta": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "llama3 scaling": (
        "Llama",
        {
            "num_key_value_heads": 2,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8,
            },
        },
    ),
    "llama linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}},
    ),
    "llama yarn": (
        "Llama",
        {
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 8,
            },
        },
    ),
    "qwen3 yarn": (
        "Qwen3",
        {
            "num_key_value_heads": 2,
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "beta_fast": 4.0,
                "original_max_position_embeddings": 16,
                "attention_factor": 1.5,
            },
        },
    ),
    "mistral": ("Mistral", {"num_key_value_heads": 2, "sliding_window": 4}),
    "mistral head_dim": ("Mistral", {"num_key_value_heads": 1, "sliding_window": 5, "head_dim": 6}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-4}),
}


def peer(name: str) -> Any:
    """The case's model in evaluation mode, with every weight large enough to matter."""
    family, fields = CASES[name]
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **fields})
    kind = f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    model = getattr(transformers, kind)(config).eval()
    generator = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            # 0.5: biases and norm weights too; matrices near unit gain.
            parameter.copy_(noise * (32**-0.5 if parameter.ndim > 1 else 0.5))
    return model


def logits(model: Decoder, tokens: Tensor, **inputs: Any) -> Tensor:
    return model.logits(model(tokens, **inputs).states)


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_same_logits_at_all_positions(name: str, tokens: Tensor) -> None:
    theirs = peer(name)
    expected = theirs(tokens).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(logits(twin(theirs), tokens), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_same_gradients_of_every_weight(name: str, tokens: Tensor) -> None:
    theirs = peer(name)
    ours = twin(theirs)

    def loss(scores: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(
            scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        )

    loss(theirs(tokens).logits).backward()
    loss(logits(ours, tokens)).backward()
    slopes = {key: p.grad for key, p in theirs.named_parameters(remove_duplicate=False)}
    table = table_of(theirs.config.model_type)
    expected = dict(Weights(slopes, ours.config, table, "theirs"))
    found = dict(ours.named_parameters())
    assert set(found) <= set(expected)
    for key, parameter in found.items():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected[key], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_same_logits_with_left_padding(name: str, tokens: Tensor) -> None:
    theirs = peer(name)
    valid = torch.ones(3, LENGTH, dtype=torch.bool)
    valid[0, :5] = valid[1, :2] = False
    positions = (valid.cumsum(1) - 1).clamp(min=0)
    expected = theirs(tokens, attention_mask=valid.long(), position_ids=positions).logits
    ours = logits(twin(theirs), tokens, valid=valid)
    torch.testing.assert_close(ours[valid], expected[valid], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunks", [(5, 1, 1, 1, 1, 1, 1, 1), (1, 4, 7)])
@torch.no_grad()
def test_same_logits_by_cached_decoding(name: str, chunks: tuple[int, ...], tokens: Tensor) -> None:
    theirs = peer(name)
    ours = twin(theirs)
    cache = ours.new_cache(3, LENGTH)
    found = [logits(ours, part, cache=cache) for part in tokens.split(chunks, dim=1)]
    torch.testing.assert_close(torch.cat(found, 1), theirs(tokens).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("gpt2")])
@torch.no_grad()
def test_interleaved_rotary_pairs_are_a_reordering_of_query_and_key_rows(
    name: str, tokens: Tensor
) -> None:
    theirs = peer(name)
    if name == "qwen3":
        assert theirs.model.layers[0].self_attn.q_norm.weight.std() > 0
    expected = theirs(tokens).logits
    ours = twin(theirs, interleaved=True)
    torch.testing.assert_close(logits(ours, tokens), expected, atol=1e-4, rtol=0)
    # Position 0 does not turn, so only later positions tell the two layouts apart.
    mixed = twin(theirs)
    mixed.load_state_dict(ours.state_dict())
    difference = (logits(mixed, tokens) - expected).abs().amax((0, 2))
    assert difference[0] < 1e-4
    assert difference[5:].min() > 1e-3


def test_reordering_back_restores_every_bit() -> None:
    ours = twin(peer("llama biases"))
    there = interleave(ours.state_dict(), ours.dims.head_dim)
    back = interleave(there, ours.dims.head_dim, back=True)
    assert not torch.equal(there["layers.0.attn.q.bias"], ours.layers[0].attn.q.bias)
    for name, tensor in ours.state_dict().items():
        assert torch.equal(back[name], tensor), name
