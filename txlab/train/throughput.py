"""The hardware's peak rate: the model FLOPs of a run are read as a share of it (MFU)."""

import time

import torch

DENSE_PEAK = {
    # Dense tensor-core peaks in bf16 and tf32, in TFLOP/s, from the vendors' data sheets (the
    # headline figures there are with 2:4 sparsity, twice these).
    "H200": (989.4, 494.7),
    "H100 PCIe": (756.5, 378.0),
    "H100": (989.4, 494.7),
    "A100": (312.0, 156.0),
    "L40S": (362.0, 183.0),
    "L4": (121.0, 60.0),
    "A10G": (70.0, 35.0),
    "A10": (125.0, 62.5),
    "RTX 4090": (165.2, 82.6),
    "RTX 3090": (71.0, 35.6),
    "V100": (125.0, 15.7),
    "T4": (65.0, 8.1),
}


def peak_flops(device: torch.device, precision: str, *, again: bool = False) -> float:
    """Peak FLOP/s of `device` in the precision that matrix products run in; 0 where unknown.

    A GPU's is the dense figure of its data sheet. A CPU's is the best that was measured here, in
    0.3 s the first time and in 0.1 s `again`: a busy moment must not pass for the peak.
    """
    half = "16" in precision
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        found = next((peak for key, peak in DENSE_PEAK.items() if key in name), None)
        return 0.0 if found is None else found[0 if half else 1] * 1e12
    if device.type == "cpu":
        dtype, threads = torch.bfloat16 if half else torch.float32, torch.get_num_threads()
        known = MEASURED.get((dtype, threads), 0.0)
        if again or not known:
            known = max(known, measure(dtype, 0.1 if known else 0.3))
            MEASURED[dtype, threads] = known
        return known
    return 0.0


MEASURED: dict[tuple[torch.dtype, int], float] = {}
"""Best rate seen in this process, by dtype and number of threads."""


def measure(dtype: torch.dtype, seconds: float) -> float:
    """Best rate of a square matrix product on this CPU within `seconds`, in FLOP/s."""
    n, best = 1024, 0.0
    a = torch.ones(n, n, dtype=dtype)
    until = time.perf_counter() + seconds
    torch.mm(a, a)
    while (start := time.perf_counter()) < until:
        torch.mm(a, a)
        best = max(best, 2.0 * n**3 / (time.perf_counter() - start))
    return best
