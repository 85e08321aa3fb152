"""Model families: the `model` slot and its options."""

from txlab.models.decoder import Decoder
from txlab.models.model import Model, Output, model_slot

__all__ = ["Decoder", "Model", "Output", "model_slot"]
