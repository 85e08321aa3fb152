"""Tiny runs under every strategy; as a script, on each of several ranks in turn."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import yaml

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.train.tiny_run import CONTEXT, Given, Run, given_nll, rows_of, split, weight_one  # noqa: E402
from txlab.models.decoder import Decoder  # noqa: E402
from txlab.nn.adapter import adapter  # noqa: E402
from txlab.nn.attention import attention  # noqa: E402
from txlab.nn.ffn import ffn  # noqa: E402
from txlab.nn.norm import norm  # noqa: E402
from txlab.nn.position import position  # noqa: E402
from txlab.nn.residual import residual  # noqa: E402
from txlab.objectives import objective  # noqa: E402
from txlab.train.callbacks.log import read_rows  # noqa: E402
from txlab.train.checkpoint import find  # noqa: E402
from txlab.train.compiling import BACKEND  # noqa: E402
from txlab.train.optim import optim  # noqa: E402
from txlab.train.recompute import prepare_blocks  # noqa: E402
from txlab.train.schedule import Constant  # noqa: E402
from txlab.train.state import seeded  # noqa: E402

Task = dict[str, Any]
VOCAB, ROWS = 18, 8
PARTS = {
    "attn": attention,
    "ffn": ffn,
    "pos": position,
    "norm": norm,
    "residual": residual,
}
MOE = ["moe", {"n_experts": 4, "top_k": 2, "hidden": 8, "balance_loss": 0.1, "bias_rate": 0.125}]
NEEDS: dict[str, dict[str, Any]] = {
    "moe": {"ffn": MOE},
    "alibi": {"pos": "alibi", "attn": "mha"},
    "t5": {"pos": "t5", "attn": "mha"},
    "linear": {"attn": "linear", "pos": "none"},
}
"""What an option asks of the others, in a model of 4 heads."""
KEPT = ("train/loss", "grad_norm", "val/loss", "tokens", "updates")


def case_of(slot: str, name: str) -> dict[str, Any]:
    """A case with that option."""
    return NEEDS.get(name, {slot: name})


def option(slot: Any, name: str, **fields: Any) -> Any:
    return slot.options[name].config(**fields)


def model_of(case: dict[str, Any]) -> Decoder:
    """A decoder of two layers from `case`: options by slot, as a name or [name, fields]."""
    chosen: dict[str, Any] = {}
    for slot, kind in PARTS.items():
        if slot in case:
            name, fields = (case[slot], {}) if isinstance(case[slot], str) else case[slot]
            chosen[slot] = option(kind, name, **fields)
    config = Decoder.Config(
        dim=16,
        n_layers=2,
        n_heads=case.get("n_heads", 4),
        context=CONTEXT,
        vocab_size=VOCAB,
        tie_embeddings=case.get("tied", True),
        dropout=case.get("dropout", 0.0),
        **chosen,
    )
    with seeded(5):
        model = Decoder(config, config.dims())
        if "adapter" in case:
            made: Any = adapter.build(option(adapter, case["adapter"], r=2))
            made.inject(model)
            for name, parameter in model.named_parameters():  # B starts at 0: A would not move
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=0.2)
    return model


def strategy_of(name: str, world: int, **fields: Any) -> tuple[Any, int]:
    """A strategy by its name, and how many ranks share a row of data."""
    if name == "one":
        return "auto", 1
    if name == "ddp":
        return yaml.safe_load((ROOT / "conf/trainer/ddp.yaml").read_text())["strategy"], 1
    from txlab.train.strategy.mesh import Mesh

    n = {"fsdp": 1, "tp": 2}[name]
    return Mesh(n, **fields), n


def run(folder: Path, case: dict[str, Any], strategy: str, resume: str | None = None) -> Run:
    """`case` under `strategy`, in steps of 8 rows, two or more micro-batches a rank."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    made, n = strategy_of(strategy, world, **case.get("strategy", {}))
    shares, mine = world // n, rank // n

    def make(step: int) -> Any:
        if "nll" in case:
            given = [given_nll(*pair) for pair in case["nll"]]
            return given[mine * len(given) // shares : (mine + 1) * len(given) // shares]
        share = split(rows_of(step, ROWS), *[ROWS // shares] * shares)[mine]
        return split(share, *[2] * (ROWS // shares // 2))

    model = weight_one() if "nll" in case else model_of(case)
    goal: Any = Given()
    if "nll" not in case:
        goal = objective.build(option(objective, case.get("objective", "next_token")))
        goal.bind(model)
    how = case.get("recompute", "none")
    prepare_blocks(model, how=how, compiled=case.get("compile", False))
    name, fields = case.get("optim", ("adamw", {"eps": 1e-3}))
    one = Run(
        folder,
        case.get("steps", 3),
        make=make,
        val=2 if goal.item == "token" else 0,  # the rows of a validation are no pairs
        model=model,
        objective=goal,
        optim=option(optim, name, **fields),
        schedule=Constant.Config(warmup=0) if "nll" in case else None,
        seed=3,
        resume=None if resume is None else find(Path(resume)),
        trainer={"devices": world, "strategy": made},
        **case.get("train", {}),
    )
    one.fit()
    if "nll" not in case:
        one_tensor(one.module.model, case.get("tied", True))
    return one


def one_tensor(model: Any, tied: bool) -> None:
    """AssertionError unless embedding and head are one tensor, of one storage, where tied."""
    embed, head = (weight(part) for part in (model.embed, model.head))
    assert (embed is head) is tied
    places = {local.data_ptr() for local in map(local_part, (embed, head)) if local.numel()}
    assert len(places) < 2 if tied else len(places) != 1
    listed = [name for name, _ in model.named_parameters() if name.startswith(("embed.", "head."))]
    assert len(listed) == (1 if tied else 2), listed


def weight(part: Any) -> torch.Tensor:
    """The matrix of an embedding or a head, under an adapter as well."""
    return getattr(part, "base_layer", part).weight


def local_part(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def figures(folder: Path) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Rows of the log of a run and the tensors that it saved last, moments among them."""
    found = find(folder)
    tensors = found.weights() if found.has("weights.safetensors") else {}
    if found.has("adapter.safetensors"):
        tensors |= found.adapter()
    for name, state in found.state()["optimizer"].items():
        whole = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
        tensors |= {f"{name}/{key}": value for key, value in whole.items()}
    rows = read_rows(folder / "metrics.csv")
    return [{key: row[key] for key in KEPT if key in row} for row in rows], tensors


def task(case: dict[str, Any], strategy: str, name: str, resume: str | None = None) -> Task:
    """A run for `on_ranks`: its folder's name, and the checkpoint that it goes on from, if any."""
    return {"name": name, "case": case, "strategy": strategy, "resume": resume}


def on_ranks(folder: Path, tasks: list[Task], world: int = 2) -> None:
    """All `tasks`, one after the other, on `world` gloo ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tasks.json").write_text(json.dumps(tasks))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    # As torchrun would: one start, many runs, so the environment has to stay as it is.
    given |= {"TORCHELASTIC_RUN_ID": "tests", "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": str(world)}
    given |= {"OMP_NUM_THREADS": "1", BACKEND: "aot_eager"}
    with (folder / "errors.txt").open("w") as errors:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", __file__, str(folder)],
                env={**os.environ, **given, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            for rank in range(world)
        ]
        try:
            assert not any(rank.wait(timeout=1800) for rank in ranks), errors_in(folder)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def errors_in(folder: Path) -> str:
    return (folder / "errors.txt").read_text()[-3000:]


def main(folder: Path, tasks: list[Task]) -> None:
    """The tasks of `on_ranks`, on one of the ranks."""
    torch.set_num_threads(1)
    for one in tasks:
        try:
            run(folder / one["name"], one["case"], one["strategy"], one["resume"])
        except Exception as error:
            raise RuntimeError(f"{one['name']}: {error}") from error


if __name__ == "__main__":
    here = Path(sys.argv[1])
    main(here, json.loads((here / "tasks.json").read_text()))
