"""The nearest matrix with equal singular values, by Newton-Schulz iterations."""

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic x <- a x + b x^3 + c x^5 (Jordan et al. 2024): so steep at 0 that 1 is no fixed
point; singular values end between 0.7 and 1.2."""
TINY = 1e-7


def orthogonalised(matrices: Tensor, steps: int) -> Tensor:
    """About U V^T of each matrix U S V^T of a stack [... o i], in bfloat16; zeros stay zeros."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.bfloat16()
    x = x.mT if tall else x
    shape = x.shape
    x = x.reshape(-1, *shape[-2:])
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=TINY)
    for _ in range(steps):
        gram = x @ x.mT
        # Fused, so that only the sums are rounded to bfloat16.
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.view(shape)
    return x.mT if tall else x
