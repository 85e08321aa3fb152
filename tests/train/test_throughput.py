"""Peak rates: the GPUs of the table, the CPU as measured."""

import pytest
import torch

from txlab.train.throughput import DENSE_PEAK, MEASURED, dense_peak, peak_flops


def test_a_cpus_peak_is_the_best_that_was_seen():
    cpu = torch.device("cpu")
    rate = peak_flops(cpu, "32-true")
    assert 1e8 < rate < 1e14
    assert peak_flops(cpu, "32-true") == rate
    MEASURED[torch.float32, torch.get_num_threads()] = 1.0
    assert peak_flops(cpu, "32-true", again=True) > 1e6
    MEASURED[torch.float32, torch.get_num_threads()] = 1e30
    assert peak_flops(cpu, "32-true", again=True) == 1e30
    MEASURED.clear()


@pytest.mark.parametrize(
    ("name", "bf16", "tf32"),
    [
        ("NVIDIA H200", 989.4, 494.7),  # the data sheet's 1,979 is with sparsity
        ("NVIDIA H100 80GB HBM3", 989.4, 494.7),
        ("NVIDIA H100 PCIe", 756.5, 378.0),
        ("NVIDIA A100-SXM4-80GB", 312.0, 156.0),
        ("NVIDIA A10", 125.0, 62.5),
        ("NVIDIA A10G", 70.0, 35.0),
        ("NVIDIA L4", 121.0, 60.0),
        ("NVIDIA L40S", 362.0, 183.0),
        ("NVIDIA GH200 480GB", 989.4, 494.7),
        ("NVIDIA B200", 2250.0, 1125.0),
        ("NVIDIA GeForce RTX 4090", 165.2, 82.6),
        ("Tesla T4", 65.0, 8.1),
        ("AMD Instinct MI300X", 1307.4, 653.7),
        ("NVIDIA T400", 0.0, 0.0),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 0.0, 0.0),
    ],
)
def test_dense_peaks(name, bf16, tf32):
    assert dense_peak(name, torch.bfloat16) == pytest.approx(bf16 * 1e12)
    assert dense_peak(name, torch.float32) == pytest.approx(tf32 * 1e12)
    assert dense_peak(name, torch.float64) == 0


def test_no_name_hides_behind_another():
    """Of two keys of which one is part of the other the longer comes first."""
    for key, peaks in DENSE_PEAK.items():
        assert dense_peak(key, torch.bfloat16) == peaks[0] * 1e12


def test_double_precision_is_measured_as_such():
    MEASURED.clear()
    assert peak_flops(torch.device("cpu"), "64-true") > 1e6
    assert {dtype for dtype, _ in MEASURED} == {torch.float64}
    MEASURED.clear()
