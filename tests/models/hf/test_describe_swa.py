"""A sliding window is exported as Mistral; what no family of theirs has is refused, not dropped."""

import pytest

from txlab.core.errors import RequestError
from txlab.models.decoder import Decoder
from txlab.models.hf.describe import describe
from txlab.nn.attention import SWA, FlashAttention

SIZES = {"dim": 32, "n_heads": 4, "n_layers": 2, "context": 32, "vocab_size": 61}


@pytest.mark.parametrize(("window", "said"), [(None, 16), (7, 7)])
def test_a_sliding_window_is_mistrals(window: int | None, said: int) -> None:
    made = describe(Decoder.Config(**SIZES, attn=SWA.Config(window=window)))
    assert (made["model_type"], made["sliding_window"]) == ("mistral", said)


@pytest.mark.parametrize(
    ("attn", "said"),
    [
        (SWA.Config(gate=True), "gate=True"),
        (SWA.Config(sink_logit=True), "sink_logit=True"),
        (SWA.Config(sinks=2), "sinks=2"),
        (FlashAttention.Config(), "flash"),
    ],
)
def test_fields_that_theirs_lack_are_refused_by_name(attn, said: str) -> None:
    with pytest.raises(RequestError, match=f"cannot express .*{said}"):
        describe(Decoder.Config(**SIZES, attn=attn))
