"""Hugging Face model directories: their config and weights as ours."""

from txlab.models.hf.directory import is_directory, model_config, weights

__all__ = ["is_directory", "model_config", "weights"]
