"""Broken models and initialisations."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.testing.mutant import caught_by
from txlab.models.decoder import Decoder
from txlab.models.model import Output
from txlab.nn.auxiliary import Aux
from txlab.nn.init import GPT2Init, Normal


@caught_by("ties_its_head", "a tensor of its own")
class CopiesTheHead(Decoder):
    """Tied at the start, and then no more."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.head.weight = nn.Parameter(self.head.weight.detach().clone())


@caught_by("decodes_as_it_reads", "cached states")
@caught_by("generates", "")
class DecodesFromZero(Decoder):
    """Every chunk on the cache begins at position 0."""

    def forward(self, tokens: Tensor, *, cache: Any = None, **keys: Any) -> Output:
        if cache is not None:
            keys["positions"] = torch.arange(tokens.shape[1])[None]
        return super().forward(tokens, cache=cache, **keys)


@caught_by("keeps_documents_apart", "second document")
class JoinsDocuments(Decoder):
    """Documents are not told to anybody."""

    def forward(self, tokens: Tensor, *, documents: Any = None, **keys: Any) -> Output:
        return super().forward(tokens, **keys)


@caught_by("returns_states_and_auxiliaries", "auxiliary loss balance has shape (2,)")
class ReturnsVectors(Decoder):
    """An auxiliary loss per row."""

    def forward(self, tokens: Tensor, **keys: Any) -> Output:
        output = super().forward(tokens, **keys)
        return Output(output.states, Aux({"balance": output.states.mean((1, 2))}))


@caught_by("drops_only_in_training", "training twice")
class NeverDropsAnything(Decoder):
    """Always in evaluation mode."""

    def train(self, mode: bool = True) -> "NeverDropsAnything":
        super().train(False)
        return self


@caught_by("fills_every_parameter", "not finite")
class ForgetsTheLast(GPT2Init):
    """One tensor is left as it was."""

    def apply(self, model: nn.Module, *, empty: bool = False) -> None:
        last = list(model.parameters())[-1]
        kept = last.detach().clone()
        super().apply(model, empty=empty)
        with torch.no_grad():
            last.copy_(kept)


@caught_by("follows_the_seed", "another seed gives the same")
class HasItsOwnSeed(GPT2Init):
    """Always the same numbers."""

    def apply(self, model: nn.Module, *, empty: bool = False) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(42)
            super().apply(model, empty=empty)


@caught_by("ties_stay_tied", "a tensor of its own")
class Unties(GPT2Init):
    """Gives the head a tensor of its own."""

    def apply(self, model: Any, *, empty: bool = False) -> None:
        super().apply(model, empty=empty)
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())


@caught_by("starts_near_uniform", "loss")
class StartsTooWide(GPT2Init):
    """All weights are of size 1."""

    def distribution(self, name: str, tensor: Tensor, role: Any, layer: int) -> Normal | None:
        found = super().distribution(name, tensor, role, layer)
        return None if found is None else Normal(1.0)
