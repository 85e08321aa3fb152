"""Blocks and stacks: branches in order, auxiliary losses, one context for equal layers."""

from dataclasses import replace

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.nn.attention import GQA, MHA
from txlab.nn.auxiliary import Aux
from txlab.nn.backend import Auto, Math
from txlab.nn.block import Block
from txlab.nn.ffn import FFN
from txlab.nn.norm import RMSNorm
from txlab.nn.pattern import Pattern
from txlab.nn.residual import Pre
from txlab.nn.stack import LayerPlan, Stack
from txlab.testing.tiny import DIMS, floats, model, tokens


class Costly(FFN):
    """Doubles its input and reports its sum as an auxiliary loss."""

    def forward(self, x, ctx):
        return 2 * x, Aux({"sum": x.sum()})


def test_auxiliary_losses_are_summed_over_layers() -> None:
    decoder = model()
    for block in decoder.layers:
        block.ffn = Costly(FFN.Config(), DIMS)
    seen: list[torch.Tensor] = []
    for block in decoder.layers:
        block.ffn.register_forward_hook(lambda _m, args, _out: seen.append(args[0].sum()))
    output = decoder(tokens(2, 5))
    assert set(output.aux.losses) == {"sum"}
    torch.testing.assert_close(output.aux.losses["sum"], seen[0] + seen[1])
    assert model()(tokens(2, 5)).aux.losses == {}


def test_a_block_runs_attention_then_feed_forward_around_the_stream() -> None:
    decoder = model()
    block = decoder.layers[0]
    assert isinstance(block, Block)
    names: list[str] = []
    for name in ("attn", "ffn"):
        getattr(block, name).register_forward_hook(lambda *_, name=name: names.append(name))
    decoder(tokens(1, 3))
    assert names == ["attn", "ffn"]
    assert list(block.residual.norms) == ["attn", "ffn"]


def test_layers_share_a_context_where_position_and_backend_agree() -> None:
    assert model(pattern=Pattern(pos=["rope", "none"])).layers.groups == [0, 1]
    decoder = model(pattern=Pattern(attn=["gqa", {"name": "gqa", "softcap": 5.0}]))
    assert decoder.layers.groups == [0, 1]
    assert decoder.layers.backends() == ["sdpa or banded", "math or banded"]
    assert model(replace(DIMS, n_layers=4)).layers.groups == [0] * 4
    assert model(backend=Math.Config()).layers.backends() == ["math", "math"]


def test_a_mixer_refuses_a_scheme_or_a_backend_at_build(monkeypatch) -> None:
    def refuse(self, position, backend):
        if backend.name == "auto" and position.name != "alibi":
            return None
        return f"model.pos={position.name} on model.backend={backend.name}: use rope on auto"

    monkeypatch.setattr(MHA, "refuse", refuse)
    model(attn=MHA.Config())
    said = r"^model.attn=mha: model.pos=alibi on model.backend=auto: use rope on auto\.$"
    with pytest.raises(RequestError, match=said):
        model(attn=MHA.Config(), pattern=Pattern(pos=["rope", "alibi"]))
    with pytest.raises(RequestError, match=r"model\.pos=rope on model\.backend=math: use"):
        model(pattern=Pattern(attn=["gqa", "mha"]), backend=Math.Config())


def test_a_mask_is_lowered_once_for_all_layers_of_a_kind(monkeypatch) -> None:
    from txlab.nn.mask import Mask

    decoder = model(
        replace(DIMS, n_layers=6),
        pattern=Pattern(attn=["gqa", "gqa", {"name": "gqa", "window": 3}]),
    )
    made: list[int | None] = []
    allowed = Mask.allowed

    def counted(self, b, h, q, k):
        made.append(self.window)
        return allowed(self, b, h, q, k)

    monkeypatch.setattr(Mask, "allowed", counted)
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    decoder(tokens(1, 8), documents=documents)
    assert sorted(made, key=str) == [3, None]


def test_a_stack_names_its_layers_by_number() -> None:
    decoder = model()
    stack = Stack(
        [LayerPlan(GQA.Config(), decoder.config.ffn, decoder.pos)],
        DIMS,
        backend=Auto(Auto.Config(), DIMS),
        norm_config=RMSNorm.Config(),
        residual_config=Pre.Config(),
    )
    assert "0.attn.q.weight" in stack.state_dict()
    x = floats(1, 4, 32)
    mask, positions = decoder._frame(tokens(1, 4), None, None, None, None)
    assert stack(x, mask, positions)[0].shape == x.shape
