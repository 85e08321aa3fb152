"""Sharded training: parameters, gradients and moments are spread over the ranks of a mesh."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

from txlab.core.errors import RequestError
from txlab.nn.collectives import total
from txlab.objectives.frozen import Frozen
from txlab.train.strategy.peers import Peers
from txlab.train.strategy.reached import Reached
from txlab.train.strategy.roles import Split, split

PATIENCE = timedelta(minutes=30)
"""How long a rank waits for the others in one exchange."""


class Mesh(ModelParallelStrategy):
    """Lightning's ModelParallelStrategy with FSDP2 and, within it, tensor parallelism by role.

    Ranks form a grid of `data` x `tensor_parallel`: those of a row share the work of each layer on
    the same tokens, the rows take different ones. Every block is a group of FSDP2's, gathered for
    its own work and let go again; embedding, head and what stands beside the blocks stay gathered
    from the forward to the end of the backward pass, for the loss reads the head. Parameters and
    their updates are those of `train.precision`; autocast computes in bfloat16 where it says so.
    One device is a mesh, too.

    Lightning's own leaves two things open that are set here: the extents of the mesh, which follow
    `tensor_parallel` and the number of ranks, and who is a peer with other rows.
    """

    def __init__(
        self,
        tensor_parallel: int = 1,
        *,
        cpu_offload: bool = False,
        reduce_each: bool = False,
        process_group_backend: str | None = None,
    ) -> None:
        """`cpu_offload`: parameters, gradients and moments lie in the CPU's memory between uses.

        `reduce_each`: gradients are exchanged after every micro-batch instead of once a step: more
        traffic, but no rank holds a whole gradient.
        """
        if tensor_parallel < 1:
            raise RequestError(
                f"trainer.strategy.tensor_parallel={tensor_parallel}: expected 1 or more."
            )
        super().__init__(
            data_parallel_size=1,
            tensor_parallel_size=tensor_parallel,
            process_group_backend=process_group_backend,
            timeout=PATIENCE,
        )
        self.tensor_parallel = tensor_parallel
        self.cpu_offload = cpu_offload
        self.reduce_each = reduce_each
        self._roots: list[FSDPModule] = []
        self._splits: list[Split] = []
        self._reached: Reached | None = None

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes // self.tensor_parallel
        super().setup_environment()

    def peers(self) -> Peers:
        """This rank's row of the mesh, among all rows."""
        rows = self.device_mesh["data_parallel"]
        return Peers(rows.get_local_rank(), rows.size(), self, rows.get_group())

    def place(self, module: Any) -> None:
        """Spread the model of a TrainModule, and the frozen networks of its objective."""
        frozen = [p.network for p in module.objective.modules() if isinstance(p, Frozen)]
        grid = self.device_mesh
        for network in (module.model, *frozen):
            if self.tensor_parallel > 1:
                self._splits.append(split(network, grid["tensor_parallel"]))
            self._roots.append(shard(network, grid["data_parallel"], offload=self.cpu_offload))
        self._reached = Reached(module.model)

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Inside of this, backward passes leave gradients on the rank that made them."""
        for root in self._roots if not self.reduce_each else ():
            root.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            for root in self._roots:
                root.set_requires_gradient_sync(True)

    def finish_gradients(self, moved: Callable[[nn.Parameter], nn.Parameter]) -> None:
        """After a step's last backward pass: add up what tensor-parallel ranks know in part.

        `moved`: what the optimizer moves for a parameter (its master), which has the gradient.
        """
        if self._reached is not None:
            self._reached.finish(self.peers().total, self.root_device, moved)
        for part in self._splits:
            for parameter in part.in_part():
                gradient = moved(parameter).grad
                if gradient is not None:
                    local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
                    local.copy_(total(local, part.mesh))

    def teardown(self) -> None:
        super().teardown()
        alone = torch.distributed.is_initialized() and torch.distributed.get_world_size() == 1
        if alone:  # nobody started this process as a rank, so nobody else would end the group
            torch.distributed.destroy_process_group()


def shard(network: nn.Module, mesh: DeviceMesh, *, offload: bool = False) -> FSDPModule:
    """FSDP2 over `mesh`, a group for each of the network's `layers` and one for all else."""
    how: dict[str, Any] = {
        "mesh": mesh,
        # Gradients of bfloat16 weights are added up in float32; of others as they are.
        "mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy() if offload else OffloadPolicy(),
    }
    for block in getattr(network, "layers", ()):
        fully_shard(block, reshard_after_forward=True, **how)
    root = fully_shard(network, reshard_after_forward=False, **how)
    assert isinstance(root, FSDPModule)
    return root
