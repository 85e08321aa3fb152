"""The fused kernel and nothing else: no falling back to one that holds all scores."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from txlab.core.errors import RequestError
from txlab.nn.backend.backend import backend
from txlab.nn.backend.sdpa import SDPA
from txlab.nn.mask import Mask


@backend("flash")
class Flash(SDPA):
    """FlashAttention (Dao 2023) as PyTorch has it, forced: what it cannot do is refused.

    On a CPU the fused kernel takes any mask; that of a GPU takes none but causal and full ones,
    and half precision only. GPUs: as documented by PyTorch, not verified here.
    """

    @dataclass
    class Config(SDPA.Config):
        """No fields: there is one kernel."""

    supports = frozenset({"sink_logit", "fused"})

    def attend(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b g s v"],
        mask: Mask,
        **how: Any,
    ) -> Float[Tensor, "b h t v"]:
        if q.is_cuda and mask.plain is None:
            raise RequestError(
                "model.backend=flash: the fused kernel of a GPU takes no window, documents or "
                "padding: use model.backend=auto, or rows without them."
            )
        if how.get("score") is not None or how.get("dropout"):
            what = "scores" if how.get("score") is not None else "dropout"
            raise RequestError(
                f"model.backend=flash: the fused kernel has no {what}: use model.backend=auto."
            )
        # The kernel wants channels side by side.
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        if torch.compiler.is_compiling():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return super().attend(q, k, v, mask, **how)
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return super().attend(q, k, v, mask, **how)
        except RuntimeError as error:
            if "No available kernel" not in str(error):
                raise
            raise RequestError(
                f"model.backend=flash: no fused kernel takes {q.dtype} with heads of "
                f"{q.shape[-1]} channels on {q.device.type}: use model.backend=auto."
            ) from error
