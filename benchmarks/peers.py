"""The same Llama-shaped decoder in txlab, in three libraries and written by hand.

Each peer is a function of a `Shape` that returns (model, loss), `loss(x)` being the mean
next-token cross-entropy of the rows x. Peers come from the registry: transformers,
x-transformers and litgpt; they are imported only when asked for.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Peer = tuple[nn.Module, Callable[[Tensor], Tensor]]


class Shape(NamedTuple):
    """Sizes of the model and of the batch."""

    layers: int
    dim: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    seq: int
    batch: int


SHAPES = {
    "recipe": Shape(4, 256, 4, 1, 704, 4096, 256, 32),
    "small": Shape(6, 384, 6, 2, 1024, 8192, 512, 8),
    "gpt2": Shape(12, 768, 12, 4, 2048, 50304, 1024, 1),
}


def txlab_peer(s: Shape) -> Peer:
    from txlab.models import Decoder
    from txlab.nn.attention import GQA
    from txlab.nn.ffn import SwiGLU
    from txlab.objectives import NextToken

    config = Decoder.Config(
        dim=s.dim,
        n_layers=s.layers,
        n_heads=s.heads,
        context=s.seq,
        vocab_size=s.vocab,
        attn=GQA.Config(n_kv_heads=s.kv_heads),
        ffn=SwiGLU.Config(hidden=s.hidden),
    )
    model, objective = Decoder(config, config.dims()), NextToken(NextToken.Config())

    def loss(x: Tensor) -> Tensor:
        labels = torch.full_like(x, -100)
        labels[:, :-1] = x[:, 1:]
        found = objective(model, {"tokens": x, "labels": labels})
        return found.sum / found.count

    return model, loss


def transformers_peer(s: Shape) -> Peer:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=s.vocab,
            hidden_size=s.dim,
            intermediate_size=s.hidden,
            num_hidden_layers=s.layers,
            num_attention_heads=s.heads,
            num_key_value_heads=s.kv_heads,
            max_position_embeddings=s.seq,
            tie_word_embeddings=True,
            use_cache=False,
            attn_implementation="sdpa",
        )
    )
    return model, lambda x: model(input_ids=x, labels=x, use_cache=False).loss


def litgpt_peer(s: Shape) -> Peer:
    from litgpt import GPT, Config
    from litgpt.utils import chunked_cross_entropy

    model = GPT(
        Config(
            name="peer",
            block_size=s.seq,
            n_layer=s.layers,
            n_head=s.heads,
            n_embd=s.dim,
            vocab_size=s.vocab,
            padded_vocab_size=s.vocab,
            n_query_groups=s.kv_heads,
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=False,
            norm_class_name="RMSNorm",
            mlp_class_name="LLaMAMLP",
            intermediate_size=s.hidden,
        )
    )
    model.lm_head.weight = model.transformer.wte.weight
    return model, lambda x: chunked_cross_entropy(model(x)[:, :-1], x[:, 1:], chunk_size=0)


def xtransformers_peer(s: Shape) -> Peer:
    from x_transformers import Decoder, TransformerWrapper

    model = TransformerWrapper(
        num_tokens=s.vocab,
        max_seq_len=s.seq,
        tie_embedding=True,
        use_abs_pos_emb=False,
        attn_layers=Decoder(
            dim=s.dim,
            depth=s.layers,
            heads=s.heads,
            attn_kv_heads=s.kv_heads,
            attn_dim_head=s.dim // s.heads,
            rotary_pos_emb=True,
            use_rmsnorm=True,
            ff_swish=True,
            ff_glu=True,
            ff_no_bias=True,
            ff_mult=s.hidden / s.dim,
            attn_flash=True,
        ),
    )

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(model(x)[:, :-1].reshape(-1, s.vocab), x[:, 1:].reshape(-1))

    return model, loss


def bare_peer(s: Shape) -> Peer:
    """By hand, with fused projections: what an engineer writes in an afternoon."""
    width = s.dim // s.heads
    frequencies = 10000 ** (-torch.arange(0, width, 2).float() / width)
    angles = torch.outer(torch.arange(s.seq).float(), frequencies)
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)

    def rotate(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(s.dim), nn.RMSNorm(s.dim)
            self.qkv = nn.Linear(s.dim, (s.heads + 2 * s.kv_heads) * width, bias=False)
            self.out = nn.Linear(s.dim, s.dim, bias=False)
            self.gate_up = nn.Linear(s.dim, 2 * s.hidden, bias=False)
            self.down = nn.Linear(s.hidden, s.dim, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            b, t, _ = x.shape
            heads = self.qkv(self.norm1(x)).view(b, t, -1, width).transpose(1, 2)
            q, k, v = heads.split([s.heads, s.kv_heads, s.kv_heads], 1)
            y = F.scaled_dot_product_attention(
                rotate(q), rotate(k), v, is_causal=True, enable_gqa=True
            )
            x = x + self.out(y.transpose(1, 2).reshape(b, t, s.dim))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(s.vocab, s.dim)
            self.layers = nn.ModuleList(Layer() for _ in range(s.layers))
            self.norm = nn.RMSNorm(s.dim)

        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x)
            for layer in self.layers:
                h = layer(h)
            return F.linear(self.norm(h), self.embed.weight)

    model = Bare()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(model(x)[:, :-1].reshape(-1, s.vocab), x[:, 1:].reshape(-1))

    return model, loss


PEERS: dict[str, Callable[[Shape], Peer]] = {
    "txlab": txlab_peer,
    "bare": bare_peer,
    "litgpt": litgpt_peer,
    "transformers": transformers_peer,
    "x-transformers": xtransformers_peer,
}
