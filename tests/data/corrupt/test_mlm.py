"""MLM: shares of what is hidden, what may be, whole words (MASK-08)."""

import numpy as np
import pytest
import torch

from txlab.core.errors import RequestError
from txlab.data import IGNORE
from txlab.data.chance import uniforms
from txlab.data.corrupt.mlm import MLM, chosen_tokens, replaced, word_numbers, word_starts


def test_worked_shares_of_a_million_tokens():
    """15 % of the ordinary tokens within 0.2; of these 80/10/10 within 0.5."""
    ordinary, mask_id, n_rows, width = torch.arange(10, 1010), 3, 1000, 1000
    source = np.random.default_rng(0)
    counts = dict.fromkeys(("ordinary", "chosen", "masked", "other", "kept"), 0)
    for row in range(n_rows):
        ids = torch.from_numpy(source.integers(0, 1010, width))
        eligible = ids >= 10
        eligible[-100:] = False  # padding
        n = int(eligible.sum())
        chance = uniforms(3 * n + 1, seed=0, epoch=0, row=row)
        words = word_numbers(ids, torch.ones(1010, dtype=torch.bool), eligible)
        chosen = torch.from_numpy(
            chosen_tokens(words, np.concatenate([chance[:n], chance[-1:]]), 0.15)
        )
        before = ids[eligible][chosen]
        after = replaced(
            before,
            torch.from_numpy(chance[n : 3 * n].reshape(2, n))[:, chosen],
            mask_id=mask_id,
            ordinary=ordinary,
        )
        assert bool(((after == mask_id) | (after >= 10)).all())
        for name, n_found in (
            ("ordinary", n),
            ("chosen", len(before)),
            ("masked", int((after == mask_id).sum())),
            ("kept", int((after == before).sum())),
            ("other", int(((after != before) & (after != mask_id)).sum())),
        ):
            counts[name] += n_found
    assert counts["chosen"] / counts["ordinary"] == pytest.approx(0.15, abs=0.002)
    for name, share in (("masked", 0.8), ("other", 0.1), ("kept", 0.1)):
        assert counts[name] / counts["chosen"] == pytest.approx(share, abs=0.005)


def test_words_are_taken_whole_and_no_length_is_favoured():
    sizes = [1, 1, 2, 3, 5]
    words = np.repeat(np.arange(5), sizes)
    taken = np.zeros(len(words))
    n = 8000
    for row in range(n):
        found = chosen_tokens(words, uniforms(6, seed=1, epoch=0, row=row), 0.5)
        assert all(len({*found[words == w].tolist()}) == 1 for w in range(5))
        taken += found
    assert taken.mean() / n == pytest.approx(0.5, abs=0.01)


def test_one_token_at_least_is_predicted_and_none_of_nothing():
    for row in range(50):
        chance = uniforms(3, seed=0, epoch=0, row=row)
        assert chosen_tokens(np.arange(2), chance, 0.01).sum() == 1
    assert chosen_tokens(np.zeros(0, dtype=np.int64), np.array([0.5]), 0.15).shape == (0,)


def test_rows_hide_ordinary_tokens_only(made):
    built = made("mlm")
    control = torch.tensor(sorted(built.tokenizer.control.values()))
    mask_id = built.tokenizer.control["<|mask|>"]
    text = built.train.text.batch(range(len(built.train)))
    batch = built.train.drawn(range(len(built.train)), [0] * len(built.train))
    chosen = batch["labels"] != IGNORE
    assert torch.equal(batch["labels"][chosen], text["tokens"][chosen])
    assert torch.equal(batch["tokens"][~chosen], text["tokens"][~chosen])
    assert not torch.isin(text["tokens"][chosen], control).any()
    assert not torch.isin(batch["tokens"][chosen], control[control != mask_id]).any()
    assert bool(text["valid"][chosen].all())
    ordinary = (~torch.isin(text["tokens"], control) & text["valid"]).sum()
    assert float(chosen.sum() / ordinary) == pytest.approx(0.15, abs=0.02)
    for name in ("positions", "documents", "valid"):
        assert torch.equal(batch[name], text[name])


def test_whole_words(made):
    built = made("mlm", whole_word=True, mask_rate=0.3)
    begins = word_starts(built.tokenizer)
    n = len(built.train)
    batch = built.train.drawn(range(n), [0] * n)
    text = built.train.text.batch(range(n))
    chosen = batch["labels"] != IGNORE
    goes_on = (~begins[text["tokens"]][:, 1:]) & text["valid"][:, 1:]
    before_is_text = ~built._is_control[text["tokens"]][:, :-1]
    together = goes_on & before_is_text
    assert int(together.sum()) > 50
    assert torch.equal(chosen[:, 1:][together], chosen[:, :-1][together])


def test_refusals(made):
    for wrong in (0.0, 1.0):
        with pytest.raises(RequestError, match="mask_rate="):
            MLM.Config(mask_rate=wrong)
    masked = MLM(made("mlm").config, made("text").tokenizer, context=64)
    with pytest.raises(RequestError, match=r"data=mlm needs a control token '<\|mask\|>'"):
        masked.prepare()
