"""The CPU's measured peak."""

import torch

from txlab.train.throughput import MEASURED, peak_flops


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
