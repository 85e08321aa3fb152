"""FlexAttention: the mask's own predicate, compiled into a kernel."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.backend.backend import Backend, backend
from txlab.nn.mask import Mask, Score


@backend("flex")
class Flex(Backend):
    """FlexAttention (Dong et al. 2024): blocks of pairs that the mask hides are never touched.

    For training on a GPU; on a CPU it has no backward, so it serves inference there and refuses
    the rest. The block mask is made once a step. GPUs: as PyTorch documents it, not verified here.
    """

    @dataclass
    class Config(Backend.Config):
        """Fields of the kernel."""

        compiled: bool | None = None
        """Compile the kernel, on a GPU block masks too; None: on a GPU. Uncompiled, all scores are
        held."""

    supports = frozenset({"softcap", "score", "sink_logit"})

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.compiled = config.compiled

    def trains(self, device: torch.device) -> bool:
        return device.type != "cpu"

    def prepare(self, mask: Mask, x: Tensor) -> None:
        self._blocks(mask, x.device)

    def attend(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b g s v"],
        mask: Mask,
        *,
        scale: float,
        score: Score | None = None,
        softcap: float | None = None,
        sink_logit: Float[Tensor, "h"] | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "b h t v"]:
        if dropout:
            raise RequestError("model.backend=flex has no dropout: use model.backend=auto.")
        asked = any(x is not None and x.requires_grad for x in (q, k, v, sink_logit))
        if asked and torch.is_grad_enabled() and not self.trains(q.device):
            raise RequestError(
                "model.backend=flex has no backward on a CPU: train with model.backend=auto, or "
                "on a GPU."
            )
        how: dict[str, Any] = {
            "score_mod": _modified(mask, score, softcap),
            "block_mask": self._blocks(mask, q.device),
            "scale": scale,
            "enable_gqa": q.shape[1] != k.shape[1],
        }
        if sink_logit is not None and self._compiles(q.device) and q.device.type == "cpu":
            raise RequestError(
                "model.backend=flex: compiled on a CPU, the kernel has no sink_logit: leave "
                "model.backend.compiled unset, or use model.backend=auto."
            )
        call = _kernel(self._compiles(q.device))
        if sink_logit is None:
            return call(q, k, v, **how)
        # exp(sink) joins a denominator whose logarithm the kernel gives beside its output.
        from torch.nn.attention.flex_attention import AuxRequest

        y, found = call(q, k, v, return_aux=AuxRequest(lse=True), **how)
        share = torch.sigmoid(found.lse - sink_logit.to(found.lse.dtype).view(-1, 1))
        return y * share[..., None].to(y.dtype)

    def _compiles(self, device: torch.device) -> bool:
        return device.type != "cpu" if self.compiled is None else self.compiled

    def _blocks(self, mask: Mask, device: torch.device) -> Any:
        """The block mask of `mask`, made once; None where it hides nothing."""
        if mask.plain == "full":
            return None

        def make() -> Any:
            if mask.documents is not None or mask.valid is not None:
                mask.ranks()  # made here: inside the predicate there is only a trace
            if mask.gapped:
                mask.places()
            rows = mask.rows

            def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
                return mask.allowed(b if rows > 1 else b * 0, h, q, k)

            # Not on a CPU: torch 2.13 writes C++ for some masks that no compiler takes.
            build = _builder(self._compiles(device) and device.type != "cpu")
            batch = rows if rows > 1 else None
            return build(seen, batch, None, mask.n_queries, mask.n_keys, device=str(device))

        return mask.memo(("flex",), make)


def _modified(mask: Mask, score: Score | None, softcap: float | None) -> Any:
    """What the kernel does to each product of a query and a key; None: nothing."""
    if score is None and softcap is None:
        return None
    rows = mask.rows

    def modified(value: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if softcap is not None:
            value = softcap * torch.tanh(value / softcap)
        if score is not None:
            row = b if rows > 1 else b * 0
            value = value + score(h, mask.query_place(row, q), mask.key_place(row, k))
        return value

    return modified


@functools.cache
def _builder(compiled: bool) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import create_block_mask

    return torch.compile(create_block_mask) if compiled else create_block_mask


@functools.cache
def _kernel(compiled: bool) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    if compiled:
        return torch.compile(flex_attention)

    def quiet(*args: Any, **how: Any) -> Any:
        with warnings.catch_warnings():
            # It advises to compile; whoever is here asked for the uncompiled one.
            warnings.filterwarnings("ignore", message="flex_attention called without")
            return flex_attention(*args, **how)

    return quiet
