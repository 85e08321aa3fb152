"""What a model is trained for, slot `objective`."""

from txlab.objectives.dpo import DPO, IPO, dpo_loss, ipo_loss
from txlab.objectives.frozen import Frozen
from txlab.objectives.linear_ce import linear_ce_sum
from txlab.objectives.next_token import NextToken
from txlab.objectives.objective import Loss, Objective, objective
from txlab.objectives.preference import Preference
from txlab.objectives.token_logprobs import token_logprobs

__all__ = [
    "DPO",
    "IPO",
    "Frozen",
    "Loss",
    "NextToken",
    "Objective",
    "Preference",
    "dpo_loss",
    "ipo_loss",
    "linear_ce_sum",
    "objective",
    "token_logprobs",
]
