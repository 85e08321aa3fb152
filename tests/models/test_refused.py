"""What refuses what: exactly the pairs in refused.py, each by a line with the reason."""

import itertools

from tests.models.refused import refusal
from txlab.core.errors import RequestError
from txlab.nn.attention import attention
from txlab.nn.backend import backend
from txlab.nn.position import position
from txlab.testing.tiny import model


def test_these_are_refused_with_these_reasons_and_no_others() -> None:
    refused = 0
    cells = list(itertools.product(attention.options, position.options, backend.options))
    for attn, pos, name in cells:
        wanted, found = refusal(attn, pos, name), None
        try:
            model(
                attn=attention.config(attn),
                pos=position.config(pos),
                backend=backend.config(name),
            )
        except RequestError as error:
            found = str(error)
        assert (found is None) == (wanted is None), (attn, pos, name, found)
        if found is not None and wanted is not None:
            refused += 1
            assert "\n" not in found
            assert wanted in found
            assert f"model.attn={attn}" in found
            assert "use model." in found
    # Linear keeps 4 of 36 and flash 8; the backend flash takes no bias, in 8 others 2 of 36 each.
    assert (refused, len(cells)) == (32 + 28 + 8 * 2, 360)
