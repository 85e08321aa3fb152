"""Parameter groups: decay by shape, rates by role, layer and width, each parameter once."""

import pytest
from torch import nn

from txlab.core.errors import RequestError
from txlab.models.decoder import Decoder
from txlab.nn.adapter import LoRA
from txlab.nn.ffn import MoE
from txlab.nn.init import MuPInit
from txlab.nn.norm import LayerNorm
from txlab.nn.position import T5, Learned
from txlab.train.optim import SGD, AdamW, Muon, RoleRates
from txlab.train.optim.roles import parameter_roles


def decoder(**parts):
    fields = {"dim": 16, "n_layers": 3, "n_heads": 2, "vocab_size": 11, "context": 8} | parts
    config = Decoder.Config(**fields)
    return Decoder(config, config.dims())


def rates(model, optim=AdamW, **fields):
    """(rate, decay) of every parameter by name."""
    optimizer = optim(optim.Config(**{"lr": 1.0, "weight_decay": 0.5} | fields)).make(model)
    return {
        name: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for name in group["param_names"]
    }


def test_matrices_come_first_and_frozen_parameters_not_at_all():
    model = decoder(norm=LayerNorm.Config(), ffn=MoE.Config(n_experts=4, bias=True))
    model.embed.weight.requires_grad_(False)
    optimizer = AdamW(AdamW.Config()).make(model)
    first, second = optimizer.param_groups
    assert (first["weight_decay"], second["weight_decay"]) == (0.1, 0.0)
    assert (first["lr"], second["lr"]) == (1e-3, 1e-3)
    assert "embed.weight" not in first["param_names"]
    assert "layers.0.ffn.experts.up.weight" in first["param_names"]
    assert {"norm.bias", "layers.0.ffn.experts.up.bias"} <= set(second["param_names"])
    without = AdamW(AdamW.Config(weight_decay=0.0)).make(model)
    assert [g["param_names"] for g in without.param_groups] == [
        g["param_names"] for g in optimizer.param_groups
    ]


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_has_a_role(tied):
    model = decoder(ffn=MoE.Config(n_experts=4), pos=Learned.Config(), tie_embeddings=tied)
    found = parameter_roles(model)
    assert found.keys() == dict(model.named_parameters()).keys()
    assert found["embed.weight"] == "embed"
    assert found["pos.table.weight"] == "position"
    assert found["norm.weight"] == found["layers.1.residual.norms.attn.weight"] == "norm"
    assert found["layers.0.attn.q.weight"] == "attn"
    assert found["layers.0.ffn.router.weight"] == "router"
    assert found["layers.0.ffn.experts.up.weight"] == "ffn"
    assert found.get("head.weight") == (None if tied else "head")
    LoRA(LoRA.Config(targets=["q"])).inject(model)
    found = parameter_roles(model)
    assert found["layers.0.attn.q.lora_A.default.weight"] == "adapter"
    assert found["layers.0.attn.q.base_layer.weight"] == "attn"


def test_a_tied_tensor_is_the_embedding_whatever_it_is_called_first():
    model = nn.Module()
    model.head, model.embed = nn.Linear(3, 5, bias=False), nn.Embedding(5, 3)
    assert parameter_roles(model) == {"head.weight": "head", "embed.weight": "embed"}
    model.embed.weight = model.head.weight
    assert parameter_roles(model) == {"head.weight": "embed"}


def test_rates_by_role():
    """Decay is decoupled and follows the rate; a tied head trains as the embedding."""
    model = decoder(ffn=MoE.Config(n_experts=4), pos=T5.Config())
    roles = RoleRates(embed=0.5, norm=2.0, router=0.0, position=0.25)
    found = rates(model, role_lr=roles)
    assert found["embed.weight"] == (0.5, 0.5)
    assert found["norm.weight"] == (2.0, 0.0)
    assert found["layers.2.ffn.router.weight"] == (0.0, 0.5)
    assert found["pos.table.weight"] == (0.25, 0.5)
    assert found["layers.2.attn.o.weight"] == (1.0, 0.5)
    found = rates(decoder(tie_embeddings=False), role_lr=RoleRates(head=0.1, attn=3.0))
    assert found["head.weight"][0] == 0.1
    assert found["embed.weight"][0] == 1.0
    assert found["layers.0.attn.q.weight"][0] == 3.0


def test_rates_of_muons_two_rules():
    found = rates(decoder(), Muon, adamw_lr=0.25, role_lr=RoleRates(attn=2.0, norm=4.0))
    assert found["layers.0.attn.q.weight"][0] == 2.0
    assert found["layers.0.ffn.up.weight"][0] == 1.0
    assert found["embed.weight"][0] == 0.25
    assert found["norm.weight"][0] == 1.0


def test_rates_fall_from_the_top_layer_down():
    """Clark et al. 2020; Bao et al. 2021: decay^(n - 1 - l), embeddings decay^n, the head 1."""
    found = rates(decoder(pos=Learned.Config(), tie_embeddings=False), layer_decay=0.5)
    assert [found[f"layers.{i}.attn.q.weight"][0] for i in range(3)] == [0.25, 0.5, 1.0]
    assert found["layers.0.residual.norms.ffn.weight"][0] == 0.25
    assert found["embed.weight"][0] == found["pos.table.weight"][0] == 0.125
    assert found["head.weight"][0] == found["norm.weight"][0] == 1.0
    both = rates(decoder(), layer_decay=0.5, role_lr=RoleRates(ffn=3.0, embed=2.0))
    assert both["layers.1.ffn.up.weight"][0] == 1.5
    assert both["embed.weight"][0] == 0.25


def mup(base=4, **parts):
    return decoder(init=MuPInit.Config(base_dim=base), **parts)


def test_rates_follow_the_width():
    """Yang et al. 2022, table 8, four times as wide; rate times decay stays as at the base."""
    parts = {"ffn": MoE.Config(n_experts=4), "norm": LayerNorm.Config(), "tie_embeddings": False}
    model = mup(**parts)
    found = rates(model, scale="mup")
    hidden = ["attn.q", "attn.o", "ffn.router", "ffn.experts.up", "ffn.experts.down"]
    for name in hidden:
        assert found[f"layers.0.{name}.weight"] == (0.25, 2.0), name
    rest = ["embed.weight", "head.weight", "norm.weight", "norm.bias"]
    assert [found[name] for name in rest] == [(1.0, 0.5)] * 2 + [(1.0, 0.0)] * 2
    sgd = rates(model, SGD, scale="mup")
    assert [sgd[name][0] for name in rest] == [4.0] * 4
    assert sgd["layers.0.attn.q.weight"] == (1.0, 0.5)
    assert rates(mup(base=16, **parts), scale="mup") == rates(model)


@pytest.mark.parametrize(
    ("model", "fields", "message"),
    [
        (decoder, {"role_lr": RoleRates(*[0.0, None, None, 0.0, 0.0, 0.0])}, "nothing would train"),
        (decoder, {"role_lr": RoleRates(router=0.5)}, "role_lr.router=0.5 is for no trained"),
        (decoder, {"role_lr": RoleRates(head=0.5)}, "it has attn, embed, ffn, norm"),
        (decoder, {"scale": "mup"}, "with model.init=gpt2: the start and the logits"),
    ],
)
def test_what_a_model_lacks_is_refused(model, fields, message):
    with pytest.raises(RequestError, match=message):
        rates(model(), **fields)


def test_width_and_adapters_exclude_each_other():
    model = mup()
    LoRA(LoRA.Config()).inject(model)
    with pytest.raises(RequestError, match="scales whole matrices, not an adapter's"):
        rates(model, scale="mup")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"role_lr": RoleRates(attn=-1.0)}, "optim.role_lr.attn=-1.0 of option 'adamw'"),
        ({"role_lr": RoleRates(attn=float("nan"))}, "a finite number, 0 or more"),
        ({"layer_decay": 0.0}, r"layer_decay=0.0 of option 'adamw': expected a number in \(0, 1\]"),
        ({"scale": "width"}, "scale=width of option 'adamw': expected mup or none"),
    ],
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(RequestError, match=message):
        AdamW.Config(**fields)


def test_an_optimizer_without_a_rule_of_widths_is_refused():
    class Plain(AdamW):
        width = None

    with pytest.raises(RequestError, match=r"optim=adamw has no rule for optim\.scale=mup"):
        Plain(AdamW.Config(scale="mup"))
