"""What models are trained on: text to tokens to packed rows to the batches of a step."""

from txlab.data.batch import IGNORE, Batch
from txlab.data.chat import Chat, Pairs, Prompts
from txlab.data.corrupt import FIM, MLM, PrefixLM, SpanCorruption
from txlab.data.diagnostics import (
    MQAR,
    Copy,
    Induction,
    ModularAddition,
    Needle,
    Parity,
    SelectiveCopy,
)
from txlab.data.source import Data, data
from txlab.data.text import Text
from txlab.data.vision import Captions, Images

__all__ = [
    "FIM",
    "IGNORE",
    "MLM",
    "MQAR",
    "Batch",
    "Captions",
    "Chat",
    "Copy",
    "Data",
    "Images",
    "Induction",
    "ModularAddition",
    "Needle",
    "Pairs",
    "Parity",
    "PrefixLM",
    "Prompts",
    "SelectiveCopy",
    "SpanCorruption",
    "Text",
    "data",
]
