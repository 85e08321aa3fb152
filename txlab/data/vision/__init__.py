"""Pictures, with a class or with a sentence each."""

from txlab.data.vision.captions import Captions
from txlab.data.vision.images import Images

__all__ = ["Captions", "Images"]
