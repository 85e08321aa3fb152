"""Text with something hidden: what is to be found again is all that is supervised."""

from txlab.data.corrupt.fim import FIM
from txlab.data.corrupt.mlm import MLM
from txlab.data.corrupt.prefix import PrefixLM
from txlab.data.corrupt.spans import SpanCorruption

__all__ = ["FIM", "MLM", "PrefixLM", "SpanCorruption"]
