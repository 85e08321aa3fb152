"""Models: logits, caches, generation and tied weights of a whole body."""

from typing import Any, cast

import torch

from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, finite, same
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import probe

MODEL = "model"


def whole(subject: Subject, **fields: Any) -> Any:
    """The model itself, shaken."""
    return probe(subject, **fields).part


@contract(MODEL)
def ties_its_head(subject: Subject) -> None:
    """Tied, head and embedding are one tensor and one parameter; untied they are two."""
    tied, untied = (whole(subject, tie_embeddings=tie) for tie in (True, False))
    expect(tied.head.weight is tied.embed.weight, "the tied head is a tensor of its own")
    expect(untied.head.weight is not untied.embed.weight, "the untied head is the embedding")
    sizes = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    expect(sizes[1] - sizes[0] == tied.embed.weight.numel(), f"parameters: {sizes}")


@contract(MODEL)
@torch.no_grad()
def decodes_as_it_reads(subject: Subject) -> None:
    """Logits of cached decoding, one token at a time, are those of the full pass."""
    model, tokens = whole(subject), tiny.tokens(2, 9)
    cache = model.new_cache(2, 9)
    states = [model(token, cache=cache).states for token in tokens.split(1, dim=1)]
    same(torch.cat(states, 1), model(tokens).states, "cached states", 2e-5)


@contract(MODEL)
@torch.no_grad()
def generates(subject: Subject) -> None:
    """Greedy generation continues prompts of uneven length as stepwise full passes do."""
    from txlab.models.generate import generate
    from txlab.models.sampling import Sampling

    model = whole(subject)
    prompts = [tiny.tokens(1, n, seed=n)[0].tolist() for n in (2, 6, 4)]
    found = generate(model, prompts, Sampling(max_new_tokens=5, temperature=0.0))
    for prompt, answer in zip(prompts, found, strict=True):
        ids = list(prompt)
        for _ in range(5):
            logits = model.logits(model(torch.tensor([ids])).states[:, -1])
            ids.append(int(logits.argmax(-1)))
        expect(answer.tokens == ids[len(prompt) :], f"{answer.tokens} after {len(prompt)} tokens")
        expect(answer.reason == "length", f"it ended by {answer.reason!r}")


@contract(MODEL)
@torch.no_grad()
def keeps_documents_apart(subject: Subject) -> None:
    """A packed batch's logits do not change with the tokens of other documents and of padding."""
    model, batch = whole(subject), cast(dict[str, Any], tiny.batch())
    keys = {name: batch[name] for name in ("positions", "documents", "valid")}
    base = model(batch["tokens"], **keys).states
    changed = batch["tokens"].clone()
    outside = (batch["documents"] == 0) | ~batch["valid"]
    changed[outside] = (changed[outside] + 7) % tiny.DIMS.vocab_size
    found = model(changed, **keys).states
    same(found[~outside], base[~outside], "states of the second document", 1e-6)
    differ(found[outside], base[outside], "states of the changed document")


@contract(MODEL)
def returns_states_and_auxiliaries(subject: Subject) -> None:
    """It returns states [b t d] and finite scalar losses by name; logits are made from states."""
    model = whole(subject)
    output = model(tiny.tokens(2, 5))
    expect(
        tuple(output.states.shape) == (2, 5, tiny.DIMS.dim), f"states {tuple(output.states.shape)}"
    )
    logits = model.logits(output.states)
    expect(tuple(logits.shape) == (2, 5, tiny.DIMS.vocab_size), f"logits {tuple(logits.shape)}")
    for name, loss in output.aux.losses.items():
        expect(loss.ndim == 0, f"auxiliary loss {name} has shape {tuple(loss.shape)}")
        finite(loss, f"auxiliary loss {name}")


@contract(MODEL)
def drops_only_in_training(subject: Subject) -> None:
    """With dropout, two training passes differ and evaluation is exact."""
    model, tokens = whole(subject, dropout=0.3), tiny.tokens(2, 8)
    same(model(tokens).states, model(tokens).states, "evaluation twice", 0.0)
    model.train()
    differ(model(tokens).states, model(tokens).states, "training twice", 1e-3)
