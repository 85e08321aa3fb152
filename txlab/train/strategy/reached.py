"""Which parameters of a sharded network the backward passes of a step have reached, on any rank."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from txlab.train.masters import HALF


class Reached:
    """Has FSDP2 exchange a zero where a rank does not use a parameter that another one does.

    Left to itself it would exchange what each rank has, and ranks that differ would wait for ever
    or add up parts of other tensors. What then no rank has used gets no gradient at all, as in one
    process: with a zero its weights would decay and its moments fade.

    A block must still be run by all ranks or by none: its weights are gathered when it is.

    FSDP2 exchanges gradients of one type, but its zeros are of the parameter's, and so is what the
    last micro-batch alone has used, while sums over micro-batches are float32. So gradients of
    bfloat16 parameters are float32 from the first, and the zeros are made here.
    """

    def __init__(self, network: nn.Module) -> None:
        """`network`: sharded already, so that these hooks see the gathered weights."""
        self.network = network
        self._names: set[str] = set()
        self._watched: dict[str, Tensor] = {}
        root: Any = network
        root.set_reduce_scatter_unused_params(True)
        blocks = {id(block) for block in getattr(network, "layers", ())}
        left = [name for name, _ in network.named_parameters()]
        for prefix, module in network.named_modules():
            if id(module) in blocks:
                own = [name for name in left if name.startswith(f"{prefix}.")]
                left = [name for name in left if name not in own]
                self._watch(module, own)
        self._watch(network, left)

    def _watch(self, group: nn.Module, names: list[str]) -> None:
        """Note which of `names` the backward passes reach, from when `group` has gathered them.

        Not before: FSDP2 calls the hooks of a shard for the zeros that it exchanges, too.
        """

        def watch(*_: Any) -> None:
            for name in names:
                parameter = self.network.get_parameter(name)
                if parameter.requires_grad and self._watched.get(name) is not parameter:
                    self._watched[name] = parameter
                    if parameter.dtype in HALF:
                        parameter.grad_dtype = torch.float32
                    parameter.register_post_accumulate_grad_hook(
                        lambda _, name=name: self._note(name, names)
                    )

        group.register_forward_pre_hook(watch)

    def _note(self, name: str, names: list[str]) -> None:
        """The backward pass has reached `name` of the group `names`."""
        self._names.add(name)
        for other in names:
            parameter = self._watched.get(other)
            if parameter is not None and parameter.dtype in HALF and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter, dtype=torch.float32)

    def finish(
        self,
        total: Callable[[Tensor], Tensor],
        device: torch.device,
        moved: Callable[[nn.Parameter], nn.Parameter],
    ) -> None:
        """At the end of a step; `total` adds up over the ranks that hold other rows, `moved` says
        what the optimizer moves for a parameter."""
        trained = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        own = torch.tensor([float(name in self._names) for name in trained], device=device)
        self._names.clear()
        for n, parameter in zip(total(own).tolist(), trained.values(), strict=True):
            if n == 0:
                parameter.grad = moved(parameter).grad = None
