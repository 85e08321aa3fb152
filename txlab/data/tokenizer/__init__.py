"""Tokenizers: text to token ids and back."""

from txlab.data.tokenizer.bpe import BPE
from txlab.data.tokenizer.byte import Byte
from txlab.data.tokenizer.pretrained import Pretrained
from txlab.data.tokenizer.tokenizer import Tokenizer, tokenizer
from txlab.data.tokenizer.unigram import Unigram
from txlab.data.tokenizer.wordpiece import WordPiece

__all__ = ["BPE", "Byte", "Pretrained", "Tokenizer", "Unigram", "WordPiece", "tokenizer"]
