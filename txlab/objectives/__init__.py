"""What a model is trained for, slot `objective`."""

from txlab.objectives.linear_ce import linear_ce_sum
from txlab.objectives.next_token import NextToken
from txlab.objectives.objective import Loss, Objective, objective

__all__ = ["Loss", "NextToken", "Objective", "linear_ce_sum", "objective"]
