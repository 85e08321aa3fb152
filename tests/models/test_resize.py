"""TIE-03: another number of tokens; old rows stay, the tie holds, spare rows are never drawn."""

import pytest
import torch

import txlab
from tests.test_run import TEXT, TINY
from txlab.core.errors import RequestError
from txlab.models.resize import resized
from txlab.models.sampling import Sampling
from txlab.models.text import generate_text
from txlab.run import train
from txlab.train.weights import load_tensors, named_tensors


def of_size(n: int, *, tied: bool):
    from txlab.models.decoder import Decoder

    config = Decoder.Config(
        dim=16, n_layers=1, n_heads=2, context=8, vocab_size=n, tie_embeddings=tied
    )
    return Decoder(config, config.dims())


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [1003, 1024, 900])
def test_old_rows_stay_and_the_tie_holds(size, tied):
    old, new = of_size(1000, tied=tied), of_size(size, tied=tied)
    load_tensors(new, resized(named_tensors(old), new), "FILE")
    assert (new.head.weight is new.embed.weight) is tied
    kept = min(size, 1000)
    for before, after in ((old.embed, new.embed), (old.head, new.head)):
        assert torch.equal(after.weight[:kept], before.weight[:kept])
        mean = before.weight.double().mean(0).float()
        assert torch.equal(after.weight[kept:], mean.expand(size - kept, -1))
    tokens = torch.arange(8)[None]
    one, two = (model.logits(model(tokens).states)[..., :kept] for model in (old, new))
    torch.testing.assert_close(one, two)


def test_other_shapes_are_refused_as_ever():
    model = of_size(20, tied=True)
    wide = {**named_tensors(model), "embed.weight": torch.zeros(17, 15)}
    with pytest.raises(RequestError, match=r"wrong shape: embed\.weight \[17, 15\]"):
        load_tensors(model, resized(wide, model), "FILE")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A text, and a run on it with 300 tokens."""
    there = tmp_path_factory.mktemp("resize")
    (there / "text.txt").write_text(TEXT)
    train(txlab.compose([*words(there), f"run_dir={there}/base"]))
    return there


def words(there) -> list[str]:
    place = [f"data.path={there}/text.txt", f"data.cache_dir={there}/cache"]
    return [*TINY, *place, "train.steps=2", "train.pictures=false", "train.sample=null"]


def plain(there) -> list[str]:
    """Without what the run that is started from brings along."""
    return [word for word in words(there) if not word.startswith(("model.", "tokenizer."))]


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_a_run_starts_with_more_rows_on_request(home, tmp_path, adapter):
    start = f"model.init_from={home}/base"
    given = [*plain(home), start, "model.vocab_size=320", f"adapter={adapter}"]
    config = txlab.compose([*given, f"run_dir={tmp_path}/run"])
    from txlab.loading import inherited

    config, changes = inherited(config, given)
    assert "model.vocab_size: 300 -> 320" in changes
    train(config)
    model = txlab.load(tmp_path / "run")
    assert model.head.weight.shape[0] == 320
    assert model.head.weight is model.embed.weight  # type: ignore[attr-defined]
    with torch.no_grad():
        model.head.weight[300:] = 9 * model.head.weight[:300].abs().max()  # likeliest by far
    answers = generate_text(
        model,
        model.tokenizer,  # type: ignore[arg-type]
        ["Line 1"],
        Sampling(max_new_tokens=8, temperature=1.0, n=4),
    )
    assert all(token < 300 for answer in answers for token in answer.tokens)


def test_fewer_rows_than_tokens_are_refused_with_both_numbers(home, tmp_path):
    from txlab.loading import inherited

    given = [*plain(home), f"model.init_from={home}/base", "model.vocab_size=297"]
    config, _ = inherited(txlab.compose([*given, f"run_dir={tmp_path}/run"]), given)
    with pytest.raises(RequestError, match=r"vocab_size=297 is below the tokenizer's 300 ids"):
        train(config)
    assert not (tmp_path / "run").exists()
