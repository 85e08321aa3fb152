"""Component configs and Dims."""

import pytest

from txlab.core.config import Component, Dims
from txlab.core.errors import RequestError


def test_require_names_field_value_option_and_expectation():
    with pytest.raises(RequestError, match=r"name=x of option 'x': expected something else\."):
        Component("x").require(False, "name", "something else")


def test_dims_at_a_layer_changes_only_the_layer():
    dims = Dims(dim=8, n_heads=2, head_dim=4, n_layers=3, context=16, vocab_size=11)
    assert dims.layer is None
    assert dims.at(2) == Dims(8, 2, 4, 3, 16, 11, layer=2)
