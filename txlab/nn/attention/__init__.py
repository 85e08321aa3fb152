"""Token mixers: the `model.attn` slot and its options."""

from txlab.nn.attention.bigbird import BigBird
from txlab.nn.attention.cross import CrossAttention
from txlab.nn.attention.differential import DifferentialAttention
from txlab.nn.attention.flash import FlashAttention
from txlab.nn.attention.heads import GQA, MHA, MQA
from txlab.nn.attention.linear import LinearAttention
from txlab.nn.attention.longformer import Longformer
from txlab.nn.attention.mixer import Mixer, attention
from txlab.nn.attention.mla import MLA
from txlab.nn.attention.softmax import SoftmaxAttention
from txlab.nn.attention.swa import SWA

__all__ = [
    "GQA",
    "MHA",
    "MLA",
    "MQA",
    "SWA",
    "BigBird",
    "CrossAttention",
    "DifferentialAttention",
    "FlashAttention",
    "LinearAttention",
    "Longformer",
    "Mixer",
    "SoftmaxAttention",
    "attention",
]
