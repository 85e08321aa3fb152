"""Another number of rows for the vocabulary: what a model's weights become."""

from collections.abc import Mapping

import torch
from torch import Tensor

from txlab.models.model import Model


def resized(tensors: Mapping[str, Tensor], model: Model) -> dict[str, Tensor]:
    """The tensors of a model like `model` but for the size of its vocabulary, in `model`'s size.

    Rows that both have stay as they are. New ones are the mean of the old, so that a token nobody
    has learned yet is no likelier than the others (Hewitt 2021, "Initializing New Word Embeddings
    for Pretrained Language Models"); drawn at random, they would be likelier than most.
    """
    found = dict(tensors)
    wanted = model.dims.vocab_size
    for name, own in model.named_parameters(remove_duplicate=False):
        given = found.get(name)
        if given is None or given.shape[0] == wanted or not _has_vocabulary(model, own):
            continue
        if given.shape[1:] == own.shape[1:]:
            found[name] = _rows(given, wanted)
    return found


def _has_vocabulary(model: Model, parameter: Tensor) -> bool:
    """Whether its rows are tokens."""
    embed = getattr(model, "embed", None)
    return parameter is model.head.weight or parameter is getattr(embed, "weight", None)


def _rows(tensor: Tensor, n: int) -> Tensor:
    new = tensor.new_empty(n, *tensor.shape[1:])
    kept = min(n, len(tensor))
    new[:kept] = tensor[:kept]
    new[kept:] = tensor.to(torch.float64).mean(0).to(tensor.dtype)
    return new
