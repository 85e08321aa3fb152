"""The hardware's peak rate: the model FLOPs of a run are read as a share of it (MFU)."""

import re
import time

import torch

DENSE_PEAK = {
    # Dense tensor-core peaks in bf16 and tf32, in TFLOP/s, from the vendors' data sheets (many of
    # the headline figures there are with 2:4 sparsity, twice these). bf16 is with float32 sums.
    "GB200": (2500.0, 1250.0),
    "B200": (2250.0, 1125.0),
    "GH200": (989.4, 494.7),
    "H200 NVL": (835.5, 417.8),
    "H200": (989.4, 494.7),
    "H100 PCIe": (756.5, 378.0),
    "H100 NVL": (835.5, 417.8),
    "H100": (989.4, 494.7),
    "H800": (989.4, 494.7),
    "H20": (148.0, 74.0),
    "A100": (312.0, 156.0),
    "A800": (312.0, 156.0),
    "A30": (165.0, 82.0),
    "A40": (149.7, 74.8),
    "A10G": (70.0, 35.0),
    "A10": (125.0, 62.5),
    "L40S": (362.0, 183.0),
    "L40": (181.0, 90.5),
    "L4": (121.0, 60.0),
    "RTX 6000 Ada": (364.2, 182.1),
    "RTX A6000": (154.8, 77.4),
    "RTX 5090": (209.5, 104.8),
    "RTX 4090": (165.2, 82.6),
    "RTX 3090": (71.0, 35.6),
    "V100": (125.0, 15.7),
    "T4": (65.0, 8.1),
    "MI355X": (2516.6, 157.3),
    "MI325X": (1307.4, 653.7),
    "MI300X": (1307.4, 653.7),
    "MI300A": (980.6, 490.3),
    "MI250X": (191.5, 47.9),
    "MI210": (181.0, 45.3),
}


def peak_flops(device: torch.device, precision: str, *, again: bool = False) -> float:
    """Peak FLOP/s of `device` in the precision that matrix products run in; 0 where unknown.

    A GPU's is the dense figure of its data sheet. A CPU's is the best that was measured here, in
    0.3 s the first time and in 0.1 s `again`: a busy moment must not pass for the peak.
    """
    dtype = torch.bfloat16 if "16" in precision else torch.float32
    dtype = torch.float64 if precision == "64-true" else dtype
    if device.type == "cuda":
        return dense_peak(torch.cuda.get_device_name(device), dtype)
    if device.type == "cpu":
        threads = torch.get_num_threads()
        known = MEASURED.get((dtype, threads), 0.0)
        if again or not known:
            known = max(known, measure(dtype, 0.1 if known else 0.3))
            MEASURED[dtype, threads] = known
        return known
    return 0.0


def dense_peak(name: str, dtype: torch.dtype) -> float:
    """Peak FLOP/s of the GPU of this name; 0 where it is not in the table, or not for `dtype`."""
    if dtype == torch.float64 or "Laptop" in name:
        return 0.0
    for key, peaks in DENSE_PEAK.items():
        if re.search(rf"(?<![A-Za-z0-9]){key}(?![A-Za-z0-9])", name):
            return peaks[0 if dtype == torch.bfloat16 else 1] * 1e12
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
