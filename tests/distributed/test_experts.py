"""Mixtures of experts on two gloo ranks: the bias of one process, losses as without ranks."""

import json
from pathlib import Path

import pytest

from tests.distributed.torchrun import torchrun

CODE = """
import json, os, sys
from pathlib import Path
import torch
from tests.train.tiny_run import Run, decoder, rows_of, split
from txlab.nn.ffn import MoE
from txlab.train.state import seeded

torch.set_num_threads(1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
config = MoE.Config(n_experts=4, top_k=2, hidden=8, balance_loss=0.1, bias_rate=0.125)
make = lambda step: [split(rows_of(step), *[4 // world] * world)[rank]]
if sys.argv[2] == "same":
    make = lambda step: [rows_of(step)]
with seeded(5):
    model = decoder(ffn=config)
one = Run(Path(sys.argv[1]), 3, make=make, val=0, model=model,
          trainer={"devices": world, "strategy": "ddp" if world > 1 else "auto"}).fit()
found = {
    "bias": [t.tolist() for n, t in one.weights().items() if n.endswith("router.bias")],
    "balance": one.log.column("train/balance"),
    "norm": one.log.column("grad_norm"),
}
(Path(sys.argv[1]) / f"rank{rank}.json").write_text(json.dumps(found))
"""


def figures(folder: Path, world: int, rows: str) -> list[dict[str, list[float]]]:
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(CODE)
    torchrun(script, folder, rows, world=world)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.slow
def test_the_bias_is_that_of_one_process(tmp_path: Path) -> None:
    (one,) = figures(tmp_path / "one", 1, "shared")
    two = figures(tmp_path / "two", 2, "shared")
    assert any(any(bias) for bias in one["bias"])
    assert [rank["bias"] for rank in two] == [one["bias"]] * 2
    same = figures(tmp_path / "same", 2, "same")
    assert same[0]["balance"] == pytest.approx(one["balance"], rel=1e-5)
    assert same[0]["norm"] == pytest.approx(one["norm"], rel=1e-4)
    assert same[1]["bias"] == one["bias"]
