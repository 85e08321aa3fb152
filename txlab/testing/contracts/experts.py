"""Mixtures of experts: who is routed where, what counts, and what the router learns from."""

from typing import Any

import torch
from torch import Tensor

from txlab.nn.auxiliary import Aux
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, same
from txlab.testing.contracts.network import ends
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import FFNProbe, probe

FFN = "model.ffn"


def mixture(subject: Subject) -> bool:
    """Whether the option is a mixture of experts."""
    return subject.has("n_experts", "top_k", "balance_loss")


def run(built: FFNProbe, x: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Aux]:
    """Output and what the layer says beside it; `valid` is False at padding."""
    n = x.shape[1]
    positions = torch.arange(n)[None]
    ctx = Context(Mask(n, n, valid=valid), positions, built.position, positions, built.backend)
    y = built.part(x, ctx)
    expect(isinstance(y, tuple), "no auxiliary loss comes with the output")
    return y


def router(built: FFNProbe) -> torch.nn.Parameter:
    """The router's weight; found by its name, as a plugin's may be of any class."""
    found = [p for name, p in built.named_parameters() if "router" in name and p.ndim == 2]
    expect(len(found) == 1, "no single matrix has `router` in its name")
    return found[0]


@contract(FFN, when=mixture)
def every_choice_reaches_its_expert(subject: Subject) -> None:
    """Without a capacity each token's output is top_k experts' own, however uneven the load."""
    built = probe(subject, n_experts=4, top_k=1, norm_top_k=False, scale=1.0)
    with torch.no_grad():
        router(built).zero_()
        router(built)[2] = 1.0
    x = built.inputs(2, 16).abs()  # all go to expert 2
    y, _ = run(built.train(), x)
    alone = torch.cat([run(built, part)[0] for part in x.split(1, dim=1)], 1)
    same(y, alone, "tokens that all go to one expert, against each alone")
    differ(y[:, -1], torch.zeros_like(y[:, -1]), "output of the last token", 1e-3)


@contract(FFN, when=mixture)
def even_router_has_the_known_loss(subject: Subject) -> None:
    """The balance loss is its weight times 1 for a router of zeros, e where all choose one."""
    for n in (2, 4, 8):
        built = probe(subject, n_experts=n, top_k=1, norm_top_k=False, balance_loss=0.5)
        x = built.inputs(2, 16).abs()
        with torch.no_grad():
            router(built).zero_()
        same(
            balance_of(built, x), torch.tensor(0.5), f"balance loss of an even router, {n} experts"
        )
        with torch.no_grad():
            router(built)[0] = 30.0
        expected = torch.tensor(0.5 * n)
        same(balance_of(built, x), expected, f"balance loss with one of {n} experts", 1e-4)


def balance_of(built: FFNProbe, x: Tensor, valid: Tensor | None = None) -> Tensor:
    losses = run(built, x, valid)[1].losses
    expect("balance" in losses, f"losses are named {', '.join(losses) or 'nothing'}, not balance")
    return losses["balance"]


@contract(FFN, when=mixture)
def router_learns(subject: Subject) -> None:
    """The router has a gradient from the output, and one from each loss by its weight."""
    built = probe(subject, balance_loss=0.0)
    ends(run(built, built.inputs())[0]).backward()
    expect(gradient(built).any(), "the router has no gradient from the output")
    top_one = probe(subject, top_k=1, balance_loss=0.0)
    ends(run(top_one, top_one.inputs())[0]).backward()
    expect(gradient(top_one).any(), "with top_k=1 the router has no gradient from the output")
    for field, name in (("balance_loss", "balance"), ("z_loss", "router_z")):
        found = []
        for weight in (0.01, 0.02):
            fields: dict[str, Any] = {"balance_loss": 0.0, "z_loss": 0.0, field: weight}
            built = probe(subject, **fields)
            losses = run(built, built.inputs())[1].losses
            expect(
                set(losses) == {name}, f"{field}={weight} gives {', '.join(losses) or 'nothing'}"
            )
            losses[name].backward()
            found.append(gradient(built))
        expect(found[0].any(), f"the router has no gradient from {field}")
        same(
            found[1] / found[0].norm(), 2 * found[0] / found[0].norm(), f"gradient of {field} twice"
        )


def gradient(built: FFNProbe) -> Tensor:
    found = router(built).grad
    expect(found is not None, "the router has no gradient")
    assert found is not None
    return found


@contract(FFN, when=mixture)
def padding_is_not_routed(subject: Subject) -> None:
    """Losses, loads and real tokens' outputs are those of the real tokens alone."""
    settings: list[dict[str, Any]] = [{}, {"capacity_factor": 1.0}]
    for fields in settings:
        built = probe(subject, z_loss=0.1, bias_rate=0.1, **fields).train()
        x = built.inputs(2, 9)
        for left in (False, True):
            valid = tiny.padded((9, 4), left=left)
            y, aux = run(built, x, valid)
            packed, alone = run(built, x[valid][None])
            where = f"{'left' if left else 'right'} padding, {fields or 'no capacity'}"
            same(y[valid], packed[0], f"{where}: outputs of real tokens")
            for name, loss in alone.losses.items():
                same(aux.losses[name], loss, f"{where}: {name}")
            for found, expected in zip(aux.loads, alone.loads, strict=True):
                same(found, expected, f"{where}: loads")


@contract(FFN, when=mixture)
def loads_count_every_choice(subject: Subject) -> None:
    """The loads add up to top_k choices a token, and a bias moves against them alone."""
    built = probe(subject, bias_rate=0.1, top_k=2)
    aux = run(built.train(), built.inputs(3, 8))[1]
    expect(len(aux.loads) == 1, f"{len(aux.loads)} loads of one layer")
    total = float(aux.loads[0].sum())
    expect(total == 48, f"3 x 8 tokens with top_k=2 make {total:g} choices, expected 48")
    before = {name: p.clone() for name, p in built.state_dict().items()}
    built.part.rebalance(aux.loads[0])
    moved = [name for name, p in built.state_dict().items() if not torch.equal(p, before[name])]
    expect(len(moved) == 1, f"a load moves {', '.join(moved) or 'nothing'}")
    step = built.state_dict()[moved[0]] - before[moved[0]]
    same(step, 0.1 * (aux.loads[0].mean() - aux.loads[0]).sign(), "the bias's step")


@contract(FFN, when=mixture)
def shared_experts_are_added(subject: Subject) -> None:
    """With n_shared, every weight learns and the output is not that of the routed experts alone."""
    built: Any = probe(subject, n_shared=1)
    x = built.inputs()
    y, _ = run(built, x)
    ends(y).backward()
    for name, parameter in built.named_parameters():
        learns = parameter.grad is not None and bool(parameter.grad.any())
        expect(learns, f"with n_shared=1, {name} has no gradient")
    routed = probe(subject)
    state = {name: p for name, p in built.state_dict().items() if name in routed.state_dict()}
    routed.load_state_dict(state, strict=True)
    differ(y, run(routed, x)[0], "output with a shared expert", 1e-2)
