"""Generation on the cache: one prefill of uneven prompts, then a token a row and step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from txlab.core.errors import RequestError, RunError
from txlab.models.model import Model
from txlab.models.sampling import Sampling
from txlab.models.step import Chooser, decoding_step

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
    globals: Sequence[Sequence[int]] | None = None,
) -> list[Generation]:
    """Continue every prompt (token ids); row i * n + j is answer j to prompt i.

    A row's answer is the same alone and in any batch. Prompt and answer together fill the model's
    context at most. `forbidden` ids are never drawn. `compiled`: torch.compile the step of a
    token, up to a minute for each new number of rows, so it pays for many or long answers.
    `globals`: for each prompt the places of its global tokens, for attention that has such; new
    tokens are none. None: by the attention's own rule.
    Raises RequestError for an empty prompt, for one longer than the context, for ids outside of
    the vocabulary and for places outside of the prompt.
    """
    _check(model, prompts, {*forbidden, *(end_ids if sampling.min_new_tokens else ())})
    marks = None if globals is None else _marks(prompts, globals)
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
            run = _Run(model, rows, room, found, sampling, end_ids, on_token, compiled, marks)
            run.decode(steps, pad_id, forbidden)
    finally:
        model.train(was_training)
    return found


@dataclass
class _Run:
    """One call's rows, and how each of them ends."""

    model: Model
    rows: list[list[int]]
    room: list[int]
    """New tokens that each row may still take."""
    found: list[Generation]
    sampling: Sampling
    end_ids: Sequence[int]
    on_token: OnToken | None
    compiled: bool
    marks: list[list[bool]] | None
    """Which tokens of each prompt are global."""

    def decode(self, steps: int, pad_id: int, forbidden: Sequence[int]) -> None:
        """Fill `found`, `steps` tokens a row at most."""
        model, sampling, device = self.model, self.sampling, self.model.device
        tokens, valid = _padded(self.rows, pad_id, device)
        width = tokens.shape[1]
        length = width + steps
        if self.compiled:  # a graph serves one length: few different ones
            length = min(-(-length // GRAPH_STEP) * GRAPH_STEP, model.dims.context)
        cache = model.new_cache(len(self.rows), length)
        special = None
        if self.marks is not None:
            each = [row for row in self.marks for _ in range(sampling.n)]
            special = _padded(each, False, device)[0]
        states = model(tokens, valid=valid, globals=special, cache=cache).states
        states = states[torch.arange(len(tokens), device=device), valid.sum(1) - 1]
        uniform = _uniform(len(self.rows), steps, sampling).to(device)
        chooser = Chooser(
            sampling,
            tokens,
            valid,
            model.dims.vocab_size,
            forbidden=forbidden,
            end_ids=self.end_ids,
        )
        forward = decoding_step(model, compiled=self.compiled)
        if self.compiled:
            cache.fix_shapes(len(self.rows), device)
        alive = list(range(len(self.rows)))
        still = [row for row in alive if self.room[row] > 0]
        chosen = None
        for step in range(steps):
            if len(still) < len(alive) and not self.compiled:
                # Rows that have ended leave the batch: they cost nothing, never pass the context.
                keep = torch.tensor(still, device=device)
                cache.reorder(keep)
                chooser.reorder(keep)
                uniform, states = uniform[keep], states[keep] if step == 0 else states
                chosen = None if chosen is None else chosen[keep]
                alive = [alive[i] for i in still]
            early = step < sampling.min_new_tokens
            if chosen is None:
                chosen, logprobs = chooser.choose(model.logits(states), uniform[:, step], early)
            else:
                chosen, logprobs = forward(chosen[:, None], cache, chooser, uniform[:, step], early)
            pairs = zip(chosen.tolist(), logprobs.tolist(), strict=True)
            still = [i for i, pair in enumerate(pairs) if self._goes_on(alive[i], *pair)]
            if not still:
                return

    def _goes_on(self, row: int, token: int, logprob: float) -> bool:
        """Note a row's token; whether the row takes another one."""
        answer = self.found[row]
        if answer.reason:
            return False
        if math.isnan(logprob):
            raise RunError("the model's logits are not a number: its weights are damaged.")
        answer.tokens.append(token)
        answer.logprobs.append(logprob)
        if token in self.end_ids:
            answer.reason = "end token"
        elif self.on_token is not None and self.on_token(row, token):
            answer.reason = "stop"
        elif len(answer.tokens) == self.room[row]:
            full = self.room[row] < self.sampling.max_new_tokens
            answer.reason = "context full" if full else "length"
        return not answer.reason


def _padded(
    rows: Sequence[list[Any]], fill: Any, device: torch.device
) -> tuple[Shaped[Tensor, "b t"], Bool[Tensor, "b t"]]:
    """Rows of one width, and where they are no padding."""
    width = max(len(row) for row in rows)
    tokens = torch.tensor([row + [fill] * (width - len(row)) for row in rows], device=device)
    counts = torch.tensor([len(row) for row in rows], device=device)
    return tokens, torch.arange(width, device=device) < counts[:, None]


def _marks(prompts: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> list[list[bool]]:
    """Whether each token of each prompt is at one of its places."""
    if len(places) != len(prompts):
        raise RequestError(
            f"globals has places for {len(places)} prompts and there are {len(prompts)}: give a "
            "list for each, empty where none is global."
        )
    for number, (prompt, some) in enumerate(zip(prompts, places, strict=True), start=1):
        wrong = next((place for place in some if not 0 <= place < len(prompt)), None)
        if wrong is not None:
            raise RequestError(
                f"globals of prompt {number} has the place {wrong}, but the prompt has "
                f"{len(prompt)} tokens: count from 0."
            )
    pairs = zip(prompts, map(set, places), strict=True)
    return [[place in some for place in range(len(prompt))] for prompt, some in pairs]


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
