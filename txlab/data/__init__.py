"""What models are trained on: text to tokens to packed rows to the batches of a step."""

from txlab.data.batch import IGNORE, Batch
from txlab.data.chat import Chat, Pairs, Prompts
from txlab.data.source import Data, data
from txlab.data.text import Text

__all__ = ["IGNORE", "Batch", "Chat", "Data", "Pairs", "Prompts", "Text", "data"]
