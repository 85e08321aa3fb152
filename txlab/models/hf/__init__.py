"""Hugging Face model directories: their config and weights as ours, and the way back."""

from txlab.models.hf.directory import is_directory, model_config, weights
from txlab.models.hf.export import export

__all__ = ["export", "is_directory", "model_config", "weights"]
