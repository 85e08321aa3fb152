"""Float32 masters of weights in half precision: what the optimizer moves and a run saves.

A bfloat16 number has 8 bits: an update below 1/512 of the weight is rounded away, and a sum of
1,024 equal gradients stops at 256. So the optimizer works on float32 copies of the weights, its
moments are float32, gradients are added up in float32, and the model gets the rounded result
(Micikevicius et al. 2018, section 3.1).
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

HALF = (torch.bfloat16, torch.float16)


class Masters:
    """Made of `parameters` while they are still exact; goes to work once they are rounded."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._copies = {
            parameter: nn.Parameter(parameter.detach().clone())
            for parameter in parameters
            if parameter.requires_grad
        }
        self._working: dict[nn.Parameter, nn.Parameter] = {}

    def adopt(self, optimizer: Optimizer) -> None:
        """Put the masters of rounded parameters in their places in `optimizer`, state included."""
        for group in optimizer.param_groups:
            group["params"] = [self._taken(p, optimizer) for p in group["params"]]

    def of(self, parameter: nn.Parameter) -> nn.Parameter:
        """The exact values of a parameter of the model: its master, or itself."""
        return self._working.get(parameter, parameter)

    @property
    def pairs(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """(parameter of the model, its master) of all that were rounded."""
        return list(self._working.items())

    def collect(self) -> None:
        """Take the gradients that did not arrive by themselves, as sharded parameters' do."""
        for parameter, master in self._working.items():
            if parameter.grad is not None:
                _hand_over(parameter, master)

    def mean_over_ranks(self) -> None:
        """Average the gradients over all ranks, in float32 as they are; every rank calls it."""
        if not self._working:
            return
        masters = list(self._working.values())
        found = torch.tensor([m.grad is not None for m in masters], dtype=torch.int32)
        found = found.to(masters[0].device)
        torch.distributed.all_reduce(found)  # how many ranks have a gradient of each
        for master, ranks in zip(masters, found.tolist(), strict=True):
            if not ranks:
                continue
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            torch.distributed.all_reduce(master.grad)
            master.grad.div_(torch.distributed.get_world_size())

    @torch.no_grad()
    def write_back(self) -> None:
        """Round the masters into the model."""
        for parameter, master in self._working.items():
            parameter.copy_(master)

    def _taken(self, parameter: nn.Parameter, optimizer: Optimizer) -> nn.Parameter:
        if parameter not in self._copies or parameter.dtype not in HALF:
            return parameter
        master = self._copies.pop(parameter)
        if master.device != parameter.device:
            master.data = master.data.to(parameter.device)
        if parameter in optimizer.state:
            optimizer.state[master] = optimizer.state.pop(parameter)
        self._working[parameter] = master
        parameter.register_post_accumulate_grad_hook(lambda p: _hand_over(p, master))
        return master


@torch.no_grad()
def _hand_over(parameter: Tensor, master: nn.Parameter) -> None:
    gradient, parameter.grad = parameter.grad, None
    assert gradient is not None
    if master.grad is None:
        master.grad = gradient.to(master.dtype)
    else:
        master.grad.add_(gradient)
