"""Generation: each row as if alone, ends, limits, refusals."""

import functools
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from txlab.core.errors import RequestError, RunError
from txlab.models import Decoder
from txlab.models.generate import Generation, generate
from txlab.models.sampling import Sampling
from txlab.models.step import Step, next_tokens
from txlab.nn.attention import GQA, Longformer
from txlab.nn.position import Learned, position
from txlab.testing.tiny import DIMS, model, tokens

PROMPTS = [[5, 9, 2, 7], [1], [3, 3, 8, 6, 11, 4, 2, 10, 9]]


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return model(replace(DIMS, context=64))


def slow(decoder: Decoder, prompt: list[int], n: int) -> list[int]:
    """Greedy continuation by its definition: the whole forward pass for every token."""
    row = list(prompt)
    with torch.no_grad():
        for _ in range(n):
            scores = decoder.logits(decoder(torch.tensor([row])).states[:, -1])
            row.append(int(scores.argmax()))
    return row[len(prompt) :]


@pytest.mark.parametrize("pos", position.options)
@pytest.mark.parametrize("window", [None, 3])
def test_greedy_is_the_likeliest_token_again_and_again(pos: str, window: int | None) -> None:
    decoder = model(pos=position.config(pos), attn=GQA.Config(window=window))
    answers = generate(decoder, PROMPTS, Sampling(max_new_tokens=8, temperature=0))
    assert [a.tokens for a in answers] == [slow(decoder, p, 8) for p in PROMPTS]
    assert [a.reason for a in answers] == ["length"] * 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_a_row_alone_is_the_row_in_its_batch(
    decoder: Decoder, temperature: float, penalty: float
) -> None:
    sampling = Sampling(
        max_new_tokens=20, temperature=temperature, repetition_penalty=penalty, seed=3, top_p=0.9
    )
    together = generate(decoder, PROMPTS, sampling, end_ids=[7, 12])
    for row, prompt in enumerate(PROMPTS):
        alone = generate(decoder, [prompt], replace(sampling, seed=3 + row), end_ids=[7, 12])
        assert alone[0].tokens == together[row].tokens
        assert alone[0].reason == together[row].reason
        assert alone[0].logprobs == pytest.approx(together[row].logprobs, abs=1e-4)


def test_more_tokens_begin_with_the_same_ones(decoder: Decoder) -> None:
    few = generate(decoder, PROMPTS, Sampling(max_new_tokens=5))
    many = generate(decoder, PROMPTS, Sampling(max_new_tokens=30))
    assert [a.tokens for a in few] == [a.tokens[:5] for a in many]


def test_seeds_and_rows_draw_differently(decoder: Decoder) -> None:
    sampling = Sampling(max_new_tokens=12, n=3)
    answers = generate(decoder, [PROMPTS[0], PROMPTS[0]], sampling)
    assert len(answers) == 6
    assert len({tuple(a.tokens) for a in answers}) == 6
    again = generate(decoder, [PROMPTS[0], PROMPTS[0]], sampling)
    assert [a.tokens for a in again] == [a.tokens for a in answers]
    other = generate(decoder, [PROMPTS[0], PROMPTS[0]], replace(sampling, seed=100))
    assert not {tuple(a.tokens) for a in other} & {tuple(a.tokens) for a in answers}


def test_generation_leaves_torchs_generator_and_the_models_mode_alone(decoder: Decoder) -> None:
    dropping = model(dropout=0.5)
    dropping.train()
    before = torch.get_rng_state()
    sampling = Sampling(max_new_tokens=6)
    first, second = (generate(dropping, [[1, 2]], sampling)[0] for _ in range(2))
    assert first.tokens == second.tokens
    assert dropping.training
    assert torch.equal(before, torch.get_rng_state())


def scripted(lengths: list[int], ends: list[int], **fields: int) -> list[Generation]:
    """Answers of a model that counts upwards: row i meets an end id after lengths[i] tokens."""
    decoder = model(replace(DIMS, context=64, vocab_size=40))

    class Counter(Decoder):
        def forward(self, tokens, **inputs):
            output = super().forward(tokens, **inputs)
            following = torch.nn.functional.one_hot((tokens + 1) % 40, 40).float()
            return output._replace(states=following)

        def logits(self, states):
            return 9 * states

    decoder.__class__ = Counter
    prompts = [[20, 20, ends[0] - n] for n in lengths]
    return generate(decoder, prompts, Sampling(temperature=0, **fields), end_ids=ends)


def test_rows_end_at_either_end_id_and_give_nothing_after_it() -> None:
    answers = scripted([1, 4, 12], [15, 30], max_new_tokens=8)
    assert [len(a.tokens) for a in answers] == [1, 4, 8]
    assert [len(a.logprobs) for a in answers] == [1, 4, 8]
    assert [a.reason for a in answers] == ["end token", "end token", "length"]
    assert answers[1].tokens == [12, 13, 14, 15]
    assert scripted([1], [30, 12], max_new_tokens=8)[0].tokens == [30]


def test_no_end_id_before_the_minimum() -> None:
    answers = scripted([3, 4, 12], [15, 16], max_new_tokens=8, min_new_tokens=3)
    assert all(len(a.tokens) >= 3 for a in answers)
    assert all(not {15, 16} & set(a.tokens[:3]) for a in answers)
    assert [len(a.tokens) for a in answers][1:] == [4, 8]


@pytest.mark.parametrize("pos", ["learned", "rope"])
def test_the_context_is_never_passed(pos: str) -> None:
    decoder = model(replace(DIMS, context=64), pos=position.config(pos))
    sampling = Sampling(max_new_tokens=10, temperature=0)
    long, full, short = tokens(1, 60)[0].tolist(), tokens(1, 64)[0].tolist(), [1, 2]
    answers = generate(decoder, [long, full, short], sampling)
    assert [len(a.tokens) for a in answers] == [4, 0, 10]
    assert [a.reason for a in answers] == ["context full", "context full", "length"]
    assert answers[0].tokens == slow(decoder, long, 4)
    assert answers[2].tokens == slow(decoder, short, 10)
    assert generate(decoder, [full], sampling)[0] == Generation(reason="context full")
    with pytest.raises(RequestError, match=r"prompt 2 has 70 tokens.*context is 64"):
        generate(decoder, [short, tokens(1, 70)[0].tolist()], sampling)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_compiled_step_gives_the_same_tokens_from_one_graph(
    window: int | None, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler.reset()
    counter = CompileCounter()
    # `txlab.models.generate` is also the name of the function that the package exports.
    module = sys.modules[generate.__module__]
    graph = torch.compile(next_tokens, dynamic=False, backend=counter)

    def step(model: Decoder, *, compiled: bool) -> Step:
        return functools.partial(graph if compiled else next_tokens, model)

    monkeypatch.setattr(module, "decoding_step", step)
    decoder = model(
        replace(DIMS, context=12), pos=position.config("learned"), attn=GQA.Config(window=window)
    )
    sampling = Sampling(max_new_tokens=9, temperature=temperature, repetition_penalty=1.1)
    prompts = [*PROMPTS[:2], PROMPTS[2], tokens(1, 12)[0].tolist()]
    for given in (prompts, prompts[::-1]):
        plain = generate(decoder, given, sampling, end_ids=[7, 12])
        fixed = generate(decoder, given, sampling, end_ids=[7, 12], compiled=True)
        assert [a.tokens for a in fixed] == [a.tokens for a in plain]
        assert [a.reason for a in fixed] == [a.reason for a in plain]
    assert counter.frame_count == 1
    torch.compiler.reset()


@pytest.mark.parametrize("compiled", [False, True])
def test_prompts_name_their_global_tokens(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row as if alone, from its places: none, one, and several far apart."""
    module = sys.modules[generate.__module__]
    monkeypatch.setattr(
        module, "decoding_step", lambda model, **_: functools.partial(next_tokens, model)
    )
    decoder, places = model(attn=Longformer.Config(window=2)), [[3], [], [0, 4, 7]]
    sampling = Sampling(max_new_tokens=6, temperature=0, n=2)
    how: Any = {"compiled": compiled}
    answers = generate(decoder, PROMPTS, sampling, globals=places, **how)
    for row, prompt in enumerate(prompt for prompt in PROMPTS for _ in range(2)):
        some = torch.zeros(1, len(prompt) + 6, dtype=torch.bool)
        some[0, places[row // 2]] = True
        for n, token in enumerate(answers[row].tokens):
            ids = torch.tensor([[*prompt, *answers[row].tokens[:n]]])
            states = decoder(ids, globals=some[:, : ids.shape[1]]).states
            assert int(decoder.logits(states[:, -1]).argmax()) == token
    assert answers != generate(decoder, PROMPTS, sampling, **how)


def test_places_of_global_tokens_are_checked(decoder: Decoder) -> None:
    for places, says in (
        ([[0]], "globals has places for 1 prompts and there are 3"),
        ([[0], [1], []], "globals of prompt 2 has the place 1, but the prompt has 1 tokens"),
        ([[0], [0], [0]], "model.attn=gqa has no global tokens: use model.attn=longformer"),
    ):
        with pytest.raises(RequestError, match=says):
            generate(decoder, PROMPTS, Sampling(), globals=places)


def test_forbidden_ids_are_never_drawn(decoder: Decoder) -> None:
    banned = list(range(5, 60))
    for temperature in (0.0, 1.0, 50.0):
        sampling = Sampling(max_new_tokens=30, temperature=temperature)
        answers = generate(decoder, PROMPTS, sampling, forbidden=banned)
        assert not set(banned) & {t for a in answers for t in a.tokens}
    with pytest.raises(RequestError, match="every id of the vocabulary is forbidden"):
        generate(decoder, PROMPTS, Sampling(), forbidden=range(61))


def test_log_probabilities_are_the_models_own(decoder: Decoder) -> None:
    sampling = Sampling(max_new_tokens=6, temperature=0.5, top_k=4, repetition_penalty=2.0)
    for prompt, answer in zip(PROMPTS, generate(decoder, PROMPTS, sampling), strict=True):
        ids = torch.tensor([prompt + answer.tokens])
        with torch.no_grad():
            scores = decoder.logits(decoder(ids).states)[0].log_softmax(-1)
        rows = range(len(prompt) - 1, ids.shape[1] - 1)
        expected = [scores[i, ids[0, i + 1]].item() for i in rows]
        assert answer.logprobs == pytest.approx(expected, abs=1e-4)


def test_a_penalty_counts_prompt_and_answer_but_never_padding(decoder: Decoder) -> None:
    sampling = Sampling(max_new_tokens=15, temperature=0, repetition_penalty=1e6)
    answers = generate(decoder, PROMPTS, sampling)
    for row, (prompt, answer) in enumerate(zip(PROMPTS, answers, strict=True)):
        assert len({*prompt, *answer.tokens}) == len(set(prompt)) + 15
        # Padded with the very token that it says first.
        again = generate(decoder, PROMPTS, sampling, pad_id=answer.tokens[0])
        assert again[row].tokens == answer.tokens


def test_tokens_are_handed_out_as_they_come_and_a_callback_may_end_a_row(decoder: Decoder) -> None:
    heard: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def listen(row: int, token: int) -> bool:
        heard[row].append(token)
        return row == 1 and len(heard[row]) == 3

    sampling = Sampling(max_new_tokens=7, temperature=0)
    answers = generate(decoder, PROMPTS, sampling, on_token=listen)
    assert [a.tokens for a in answers] == list(heard.values())
    assert [len(a.tokens) for a in answers] == [7, 3, 7]
    assert [a.reason for a in answers] == ["length", "stop", "length"]


def test_impossible_prompts_are_refused(decoder: Decoder) -> None:
    with pytest.raises(RequestError, match="prompt 2 is empty"):
        generate(decoder, [[1], []], Sampling())
    with pytest.raises(RequestError, match=r"prompt 1 has the id 61.* vocabulary is 61"):
        generate(decoder, [[1, 61]], Sampling())
    assert generate(decoder, [], Sampling()) == []


def test_a_model_that_computes_nan_says_so() -> None:
    broken = model(pos=Learned.Config())
    with torch.no_grad():
        broken.norm.weight[0] = float("nan")
    with pytest.raises(RunError, match="not a number"):
        generate(broken, [[1, 2]], Sampling(max_new_tokens=3))
