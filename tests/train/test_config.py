"""The `train.*` keys: what is refused."""

import pytest

from txlab.core.errors import RequestError
from txlab.train.config import Train


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip": float("inf")}, r"train\.clip=inf: expected a finite number"),
        ({"steps": 10**30}, r"train\.steps=10+: expected a number below 2\^63"),
        ({"steps": 1, "epochs": 1}, "contradict each other"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields, message):
    with pytest.raises(RequestError, match=message):
        Train(**fields)
