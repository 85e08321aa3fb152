"""Streaming: early, whole characters, and never past a stop text; how a text begins."""

import copy

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.data.tokenizer import BPE
from txlab.models import Decoder
from txlab.models.sampling import Sampling
from txlab.models.text import Stream, generate_text


@pytest.fixture(scope="module")
def tokenizer():
    made = BPE(BPE.Config(vocab_size=300))
    made.train(["the cat sat on the mat, the END of the tale 日本"] * 4)
    return made


def decoder(vocab_size):
    config = Decoder.Config(dim=16, n_layers=1, n_heads=2, context=32, vocab_size=vocab_size)
    return Decoder(config, config.dims())


def run(tokenizer, text, stop=()):
    stream = Stream(tokenizer, stop)
    pieces = []
    for token in tokenizer.encode(text):
        pieces.append(stream.add(token))
        if stream.stopped:
            break
    return stream, [*pieces, stream.close()]


def test_pieces_add_up_and_characters_stay_whole(tokenizer):
    text = "a 日本語 👩‍👩‍👧 é"
    stream, pieces = run(tokenizer, text)
    assert "".join(pieces) == stream.text == text
    assert len([p for p in pieces if p]) > 3
    assert not any("\ufffd" in piece for piece in pieces)


def test_an_unfinished_character_ends_as_a_replacement(tokenizer):
    stream = Stream(tokenizer)
    ids = tokenizer.encode("é")[:1]
    whole = tokenizer.decode(ids)
    assert "".join([stream.add(ids[0]), stream.close()]) == whole == "\ufffd"


@pytest.mark.parametrize("stop", [["END"], ["nope", "END of"], ["E", "END"]])
def test_text_ends_before_the_stop_text(tokenizer, stop):
    stream, pieces = run(tokenizer, "the cat END of the tale", stop)
    assert stream.stopped
    assert "".join(pieces) == stream.text == "the cat "


def test_what_only_looked_like_a_stop_text_is_kept(tokenizer):
    stream, pieces = run(tokenizer, "the EN cat EN", ["END"])
    assert not stream.stopped
    assert "".join(pieces) == stream.text == "the EN cat EN"


@pytest.mark.parametrize(
    ("at_least", "text"),
    [(0, "x"), (4, "x"), (5, "xENDyy"), (9, "xENDyy"), (10, "xENDyyENDzz")],
)
def test_a_stop_text_counts_from_the_least_length_on(tokenizer, at_least, text):
    """`xENDyyENDzz`, a token a letter: the stop texts are complete at tokens 4 and 9."""
    stream, sent = Stream(tokenizer, ["END"], at_least=at_least), []
    for letter in "xENDyyENDzz":
        (token,) = tokenizer.encode(letter)
        sent.append(stream.add(token))
        if stream.stopped:
            break
    assert "".join([*sent, stream.close()]) == stream.text == text


def test_a_stop_text_that_begins_before_the_least_length_still_ends(tokenizer):
    stream = Stream(tokenizer, ["abab"], at_least=5)
    for letter in "ababab":
        stream.add(*tokenizer.encode(letter))
    assert stream.stopped
    assert stream.text == "ab"


def test_no_row_is_shorter_than_asked_for(tokenizer):
    letters = ["a", "e", "t", " "]
    sampling = Sampling(max_new_tokens=12, min_new_tokens=9, n=6, seed=3, stop=letters)
    answers = generate_text(decoder(tokenizer.vocab_size), tokenizer, ["the cat"], sampling)
    assert min(len(answer.tokens) for answer in answers) >= 9
    assert "stop" in {answer.reason for answer in answers}


def test_streamed_pieces_are_the_answers(tokenizer):
    model, parts = decoder(tokenizer.vocab_size), {}
    answers = generate_text(
        model,
        tokenizer,
        ["the cat", ""],
        Sampling(max_new_tokens=12, n=2, seed=3, stop=["a"]),
        on_text=lambda row, text: parts.setdefault(row, []).append(text),
    )
    assert ["".join(parts.get(row, [])) for row in range(4)] == [a.text for a in answers]
    assert all("a" not in answer.text for answer in answers)
    assert {answer.reason for answer in answers} <= {"stop", "length", "end token"}


def test_spare_rows_of_the_embedding_are_never_drawn(tokenizer):
    model = decoder(tokenizer.vocab_size + 500)
    (answer,) = generate_text(model, tokenizer, [""], Sampling(max_new_tokens=25, seed=1))
    assert max(answer.tokens) < tokenizer.vocab_size


def test_a_foreign_tokenizer_is_refused(tokenizer):
    with pytest.raises(RequestError, match=rf"{tokenizer.vocab_size} ids.*only 100 rows"):
        generate_text(decoder(100), tokenizer, ["x"], Sampling())


def test_only_control_tokens_that_end_something_are_drawn(tokenizer):
    model = decoder(tokenizer.vocab_size)
    idle = set(tokenizer.control.values()) - set(tokenizer.end_ids)
    # The head is zero but for control tokens, so that these are by far the likeliest.
    with torch.no_grad():
        model.embed.weight.fill_(1.0)
        model.norm.weight.fill_(1.0)
        model.embed.weight[sorted(tokenizer.control.values())] = 3.0
    sampling = Sampling(max_new_tokens=5, n=20, seed=0)
    answers = generate_text(model, tokenizer, ["the cat"], sampling)
    drawn = {token for answer in answers for token in answer.tokens}
    assert not drawn & idle


def test_a_text_of_nothing_begins_a_document_without_bos_as_well(tokenizer):
    """As in SmolLM2: there the sample of a run's first validation ended the run."""
    model, sampling = decoder(300), Sampling(max_new_tokens=5, temperature=0)
    other = copy.copy(tokenizer)
    other.bos_id = None
    (found,) = generate_text(model, other, [""], sampling)
    (after_eos,) = generate_text(model, other, [[tokenizer.eos_id]], sampling)
    assert found.tokens == after_eos.tokens
    (text,) = generate_text(model, other, ["the"], sampling)
    (ids,) = generate_text(model, other, [tokenizer.encode("the")], sampling)
    assert text.tokens == ids.tokens
