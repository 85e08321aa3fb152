"""Tokenizers: text to token ids and back."""

from txlab.data.tokenizer.bpe import BPE
from txlab.data.tokenizer.pretrained import Pretrained
from txlab.data.tokenizer.tokenizer import Tokenizer, tokenizer

__all__ = ["BPE", "Pretrained", "Tokenizer", "tokenizer"]
