"""A decoder of ours with the weights of a transformers model, through the importer's tables."""

from torch import nn

from txlab.models import Decoder
from txlab.models.hf.config import config_of
from txlab.models.hf.mapping import interleave, table_of
from txlab.models.hf.weights import Weights
from txlab.nn.position import RoPE


def twin(theirs: nn.Module, *, interleaved: bool = False) -> Decoder:
    """Our decoder with the weights of a Hugging Face model, in evaluation mode."""
    described = theirs.config.to_dict()
    config = config_of(described)
    dims = config.dims()
    table = table_of(described["model_type"])
    weights = dict(Weights(theirs.state_dict(), config, table, "theirs"))
    if config.tie_embeddings:
        weights["head.weight"] = weights["embed.weight"]
    if interleaved:
        assert isinstance(config.pos, RoPE.Config)
        config.pos.interleaved = True
        weights = interleave(weights, dims.head_dim)
    ours = Decoder(config, dims)
    ours.load_state_dict(weights, strict=True)
    return ours.eval()
