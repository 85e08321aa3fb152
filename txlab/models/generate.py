"""Generation on the cache: one prefill of uneven prompts, then a token a row and step."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from txlab.core.errors import RequestError, RunError
from txlab.models.model import Model
from txlab.models.sampling import Sampling, draw, penalise
from txlab.models.step import Step, compiled_step, next_logits, scored

OnToken = Callable[[int, int], bool]
"""Called with (row, token) for each new token but end tokens; True ends the row."""

GRAPH_STEP = 128
"""Compiled decoding rounds the length of the cache up to a multiple of this."""


@dataclass
class Generation:
    """One row's answer."""

    tokens: list[int] = field(default_factory=list)
    """New tokens, with the end token where there is one."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probability of each new token under the model itself (temperature 1, nothing cut)."""
    reason: str = ""
    """Why the row ended: `end token`, `stop`, `length` or `context full`."""


def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    end_ids: Sequence[int] = (),
    pad_id: int = 0,
    forbidden: Sequence[int] = (),
    on_token: OnToken | None = None,
    compiled: bool = False,
) -> list[Generation]:
    """Continue every prompt (token ids); row i * n + j is answer j to prompt i.

    A row's answer is the same alone and in any batch. Prompt and answer together fill the model's
    context at most. `forbidden` ids are never drawn. `compiled`: torch.compile the step of a
    token, up to a minute for each new number of rows, so it pays for many or long answers.
    Raises RequestError for an empty prompt, for one longer than the context and for ids outside
    of the vocabulary.
    """
    _check(model, prompts, {*forbidden, *(end_ids if sampling.min_new_tokens else ())})
    context = model.dims.context
    rows = [list(prompt) for prompt in prompts for _ in range(sampling.n)]
    found = [Generation() for _ in rows]
    room = [min(sampling.max_new_tokens, context - len(row)) for row in rows]
    for row, left in enumerate(room):
        if left == 0:
            found[row].reason = "context full"
    steps = max(room, default=0)
    if steps == 0:
        return found
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            _decode(
                model,
                rows,
                room,
                found,
                sampling,
                steps,
                end_ids,
                pad_id,
                forbidden,
                on_token,
                compiled,
            )
    finally:
        model.train(was_training)
    return found


def _decode(
    model: Model,
    rows: list[list[int]],
    room: list[int],
    found: list[Generation],
    sampling: Sampling,
    steps: int,
    end_ids: Sequence[int],
    pad_id: int,
    forbidden: Sequence[int],
    on_token: OnToken | None,
    compiled: bool,
) -> None:
    device = model.device
    ends = frozenset(end_ids)
    uniform = _uniform(len(rows), steps, sampling).to(device)
    lengths = [len(row) for row in rows]
    width = max(lengths)
    tokens = torch.tensor([row + [pad_id] * (width - len(row)) for row in rows], device=device)
    counts = torch.tensor(lengths, device=device)
    valid = torch.arange(width, device=device) < counts[:, None]
    length = width + steps
    if compiled:  # a graph serves one length: few different ones
        length = min(-(-length // GRAPH_STEP) * GRAPH_STEP, model.dims.context)
    cache = model.new_cache(len(rows), length)
    states = model(tokens, valid=valid, cache=cache).states
    last = states[torch.arange(len(rows), device=device), counts - 1]
    logits, total = scored(model.logits(last))
    never = torch.tensor(list(forbidden), dtype=torch.long, device=device)
    end_tensor = torch.tensor(sorted(ends), dtype=torch.long, device=device)
    seen = None
    if sampling.repetition_penalty != 1:
        seen = torch.zeros(len(rows), model.dims.vocab_size + 1, dtype=torch.bool, device=device)
        # Padding goes to a column of its own, so that it never counts as seen.
        seen.scatter_(1, tokens.where(valid, model.dims.vocab_size), True)
    forward: Step = functools.partial(next_logits, model)
    if compiled:
        cache.fix_shapes(len(rows), device)
        forward = compiled_step(model)
    alive = [row for row in range(len(rows)) if room[row] > 0 or compiled]
    if len(alive) < len(rows):
        keep = torch.tensor(alive, device=device)
        cache.reorder(keep)
        logits, total, uniform = logits[keep], total[keep], uniform[keep]
        seen = None if seen is None else seen[keep]
    for step in range(steps):
        scores = logits
        if seen is not None:
            scores = penalise(scores, seen[:, :-1], sampling.repetition_penalty)
        if len(never):
            scores = scores.index_fill(1, never, float("-inf"))
        if step < sampling.min_new_tokens and len(end_tensor):
            scores = scores.index_fill(1, end_tensor, float("-inf"))
        chosen = draw(scores, sampling, uniform[:, step])
        logprobs = (logits.gather(1, chosen[:, None]) - total)[:, 0]
        still = []
        for i, (token, logprob) in enumerate(zip(chosen.tolist(), logprobs.tolist(), strict=True)):
            row = alive[i]
            answer = found[row]
            if answer.reason:
                continue
            if math.isnan(logprob):
                raise RunError("the model's logits are not a number: its weights are damaged.")
            answer.tokens.append(token)
            answer.logprobs.append(logprob)
            if token in ends:
                answer.reason = "end token"
            elif on_token is not None and on_token(row, token):
                answer.reason = "stop"
            elif len(answer.tokens) == room[row]:
                full = room[row] < sampling.max_new_tokens
                answer.reason = "context full" if full else "length"
            else:
                still.append(i)
        if not still:
            return
        if seen is not None:
            seen.scatter_(1, chosen[:, None], True)
        if len(still) < len(alive) and not compiled:
            # Rows that have ended leave the batch: they cost nothing and never pass the context.
            keep = torch.tensor(still, device=device)
            cache.reorder(keep)
            chosen, uniform = chosen[keep], uniform[keep]
            seen = None if seen is None else seen[keep]
            alive = [alive[i] for i in still]
        logits, total = forward(chosen[:, None], cache)


def _check(model: Model, prompts: Sequence[Sequence[int]], never: set[int]) -> None:
    context, size = model.dims.context, model.dims.vocab_size
    for number, prompt in enumerate(prompts, start=1):
        if not prompt:
            raise RequestError(f"prompt {number} is empty: give it at least one token.")
        if len(prompt) > context:
            raise RequestError(
                f"prompt {number} has {len(prompt)} tokens, but the model's context is "
                f"{context}: shorten it, or train with a larger model.context."
            )
        if min(prompt) < 0 or max(prompt) >= size:
            wrong = next(token for token in prompt if not 0 <= token < size)
            raise RequestError(
                f"prompt {number} has the id {wrong}, but the model's vocabulary is {size} ids: "
                "use the tokenizer that it was trained with."
            )
    if len(never) >= size:
        raise RequestError("every id of the vocabulary is forbidden: leave at least one.")


def _uniform(n_rows: int, steps: int, sampling: Sampling) -> Float[Tensor, "b s"]:
    """Random numbers of every row and step, each row from a stream of its own."""
    if sampling.temperature == 0:
        return torch.zeros(n_rows, steps)
    streams = [torch.Generator().manual_seed(sampling.seed + row) for row in range(n_rows)]
    return torch.stack([torch.rand(steps, generator=stream) for stream in streams])
