"""DDP-01: parts that one rank, or no rank, uses in a step; frozen ones; experts without tokens."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.distributed.strategies import strategy_of
from tests.distributed.torchrun import torchrun
from tests.train.tiny_run import Run, decoder, rows_of, split
from txlab.nn.ffn import MoE
from txlab.objectives.next_token import NextToken
from txlab.objectives.objective import Loss
from txlab.train import checkpoint
from txlab.train.optim import AdamW
from txlab.train.state import seeded

KINDS = ("parts", "experts")
STRATEGIES: dict[str, tuple[str, dict[str, bool]]] = {
    "ddp": ("ddp", {}),
    "fsdp": ("fsdp", {}),
    "each": ("fsdp", {"reduce_each": True}),
}
CLOSE = {"32-true": 1e-6, "bf16-true": 1e-4}
"""How far weights of two ranks may be from those of one process, which move by up to 1.7e-3. FSDP2
rounds what it has exchanged to bfloat16 (1.4e-5 off; 4.8e-5 where it does after each micro-batch).
"""


class Picky(NextToken):
    """`extra` and `spare` are used for some of the rows of rank 0; `value_head`, `idle` never."""

    def forward(self, model: Any, batch: Any) -> Loss:
        tokens = batch["tokens"]
        if not hasattr(model, "extra"):
            return super().forward(model, batch)
        picked = bool((tokens < 8).all()) and int(tokens.sum()) % 2 == 1
        model.layers[1].ffn.picked = picked
        loss = super().forward(model, batch)
        if picked:
            more = model.extra(model.embed(tokens)).float().pow(2).sum()
            return Loss(loss.sum + more, loss.count, loss.metrics)
        return loss


def rows(step: int) -> Any:
    """Tokens below 8 in the rows of rank 0, the others in those of rank 1; step 2 picks no row."""
    batch = rows_of(step)
    batch["tokens"][:2] %= 8
    if step == 2:
        batch["tokens"][:2] -= batch["tokens"][:2] % 2
    batch["tokens"][2:] = 8 + batch["tokens"][2:] % 8
    return batch


def model_of(kind: str) -> Any:
    with seeded(5):
        if kind != "experts":
            model: Any = decoder(tie_embeddings=False)
            model.extra, model.value_head = nn.Linear(16, 16), nn.Linear(16, 1)
            model.layers[0].requires_grad_(False)
            ffn = model.layers[1].ffn
            ffn.spare, ffn.idle = nn.Linear(16, 16), nn.Linear(16, 16)
            ffn.register_forward_hook(lambda ffn, _, y: y + ffn.spare(y) if ffn.picked else y)
            return model
        experts = MoE.Config(n_experts=4, top_k=1, hidden=8)
        model = decoder(ffn=experts, tie_embeddings=False)
    with torch.no_grad():  # rank 0's tokens have expert 0, rank 1's expert 1, and none the others
        weight = model.embed.weight
        weight.abs_()
        weight[8:] *= -1
        for block in model.layers:
            block.ffn.router.weight.zero_()
            block.ffn.router.weight[:2] = torch.tensor([[1.0], [-1.0]])
    return model


def run(folder: Path, kind: str, strategy: str, precision: str) -> None:
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    share = 4 // world
    name, fields = STRATEGIES.get(strategy, (strategy, {}))
    Run(
        folder,
        4,
        make=lambda step: split(split(rows(step), *[share] * world)[rank], *[1] * share),
        val=0,
        model=model_of(kind),
        objective=Picky(NextToken.Config()),
        optim=AdamW.Config(eps=1e-3, weight_decay=0.5),
        trainer={"devices": world, "strategy": strategy_of(name, world, **fields)[0]},
        precision=precision,
    ).fit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unused")
    for kind, precision in itertools.product(KINDS, CLOSE):
        run(folder / f"{kind}-{precision}", kind, "one", precision)
    torchrun(__file__, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_ranks_use_may_differ(folder: Path, kind: str, strategy: str, precision: str):
    names = (f"{kind}-{precision}", f"{kind}-{precision}-{strategy}")
    one, two = (checkpoint.find(folder / name) for name in names)
    tensors, close = two.weights(), CLOSE[precision]
    for name, tensor in one.weights().items():
        torch.testing.assert_close(tensors[name], tensor, rtol=0, atol=close, msg=name)
    start = dict(model_of(kind).named_parameters())
    if kind != "experts":
        for name in ("extra.weight", "layers.1.ffn.spare.weight"):
            assert not torch.equal(tensors[name], start[name]), name
        for name in ("value_head.weight", "layers.1.ffn.idle.weight"):
            assert torch.equal(tensors[name], start[name]), name  # not decayed either
        frozen = tensors["layers.0.attn.q.weight"]
        assert torch.equal(frozen, start["layers.0.attn.q.weight"].to(frozen.dtype))


def test_some_steps_pick_rows_and_one_does_not():
    """Else nothing above would fade in a step that does not use it."""
    odd = [[int(row.sum()) % 2 for row in rows(step)["tokens"][:2]] for step in range(4)]
    assert [any(step) for step in odd] == [True, True, False, True]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for kind, precision, strategy in itertools.product(KINDS, CLOSE, STRATEGIES):
        run(Path(sys.argv[1]) / f"{kind}-{precision}-{strategy}", kind, strategy, precision)
