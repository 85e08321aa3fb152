"""What `Reached` costs a step under fsdp: which parameters were reached, added up over the ranks.

    torchrun --nproc-per-node 2 -m benchmarks.reached

Rank 0 prints the median step with and without, in turn, and that of the exchange by itself.
"""

import statistics
import time

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from txlab.models.decoder import Decoder
from txlab.train.strategy.mesh import shard
from txlab.train.strategy.reached import Reached

STEPS, WARM = 200, 10


def main() -> None:
    """Two hundred steps of each kind, of 32 tokens a rank."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    size = distributed.get_world_size()
    config = Decoder.Config(dim=336, n_layers=6, n_heads=8, context=32, vocab_size=8192)
    torch.manual_seed(0)
    model = Decoder(config, config.dims())
    count = sum(p.numel() for p in model.parameters())
    shard(model, init_device_mesh("cpu", (size,)))
    reached = Reached(model)
    tokens = torch.randint(8192, (1, 32))
    times: dict[str, list[float]] = {"with": [], "without": [], "alone": []}

    def total(own: torch.Tensor) -> torch.Tensor:
        distributed.all_reduce(own)
        return own

    for n in range(2 * (STEPS + WARM)):
        kind = ("with", "without")[n % 2]
        distributed.barrier()
        begin = time.perf_counter()
        model.logits(model(tokens).states).float().logsumexp(-1).sum().backward()
        distributed.barrier()  # waiting for the other rank is no cost of the exchange
        middle = time.perf_counter()
        if kind == "with":
            reached.finish(total, torch.device("cpu"), lambda p: p)
            times["alone"].append(time.perf_counter() - middle)
        times[kind].append(time.perf_counter() - begin)
        model.zero_grad(set_to_none=True)
    if distributed.get_rank() == 0:
        kept = {k: statistics.median(t[WARM:]) * 1e3 for k, t in times.items()}
        names = len(list(model.parameters()))
        print(f"{count / 1e6:.1f}M in {names} tensors, {size} ranks, medians of {STEPS} steps")
        print(", ".join(f"{k} {t:.2f} ms" for k, t in kept.items()))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
