"""Checkpoint folders: written whole or not at all, read without executing anything.

RUN/checkpoints/step-000100/  weights.safetensors  state.pt  config.yaml  tokenizer.json  COMPLETE

COMPLETE is written last and has size and SHA-256 of the others, which are compared when these are
read (checkpoints from before there were sums are read as they are).
A run with an adapter writes adapter.safetensors; where its base came from other weights, these are
named in origin.json instead of being written again; its place may be edited, so it has no sum.
"""

from txlab.train.checkpoint.keeping import NEWEST, Keep, clear_leftovers, thin_out
from txlab.train.checkpoint.reading import (
    ADAPTER,
    BEST,
    CONFIG,
    FOLDER,
    MARK,
    ORIGIN,
    STATE,
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    Score,
    best_first,
    complete,
    damaged,
    find,
)
from txlab.train.checkpoint.writing import plain_files, save, save_tensors, write

__all__ = [
    "ADAPTER",
    "BEST",
    "CONFIG",
    "FOLDER",
    "MARK",
    "NEWEST",
    "ORIGIN",
    "STATE",
    "TOKENIZER",
    "WEIGHTS",
    "Checkpoint",
    "Keep",
    "Score",
    "best_first",
    "clear_leftovers",
    "complete",
    "damaged",
    "find",
    "plain_files",
    "save",
    "save_tensors",
    "thin_out",
    "write",
]
