"""Running sums of a run's figures."""

import torch

from txlab.train.history import Sums


def test_sums_count_past_what_float32_can():
    sums, many = Sums(), torch.tensor(2**24)
    one = torch.tensor(1)
    for count in (many, one, one, one):
        sums.add({"loss": (torch.tensor(0.5), count)})
    assert sums.totals()["loss"] == (2.0, 2**24 + 3)
