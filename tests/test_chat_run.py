"""Trained on a handful of chats, a model gives their answers and ends them by itself (SFT-01)."""

import json
from pathlib import Path

import pytest

import txlab
from txlab.data.chat import Template
from txlab.loading import inherited
from txlab.models.sampling import Sampling
from txlab.models.text import generate_text
from txlab.run import train
from txlab.testing import tiny

TURNS = [
    [("Who?", "me"), ("Where?", "over there")],
    [("Say the end.", "<|end|>"), ("Once more?", "<|end|> and on")],
    [("How many?", "one two three four five six"), ("Of what?", "x")],
]
SHORT = [
    *("model.dim=32", "model.n_layers=2", "model.n_heads=2", "model.context=96", "data=chat"),
    *("data.val_fraction=0", "data.batch_size=3", "train.steps=120", "optim.lr=0.01"),
    *("optim.weight_decay=0", "trainer=cpu", "train.sample=null", "train.save_every=null"),
]


@pytest.mark.parametrize("packed", [True, False])
def test_learns_answers_and_where_they_end(tmp_path: Path, packed: bool):
    """The pad token is the end token; several turns; one answer spells the end token."""
    folder = tiny.tokenizer(tmp_path / "tokenizer")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    same = {"pad_token": "<|end|>", "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | same))
    chats = [
        [m for u, a in chat for m in (message("user", u), message("assistant", a))]
        for chat in TURNS
    ]
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    words = [*SHORT, f"data.path={file}", f"data.cache_dir={tmp_path / 'cache'}"]
    words += ["tokenizer=pretrained", f"tokenizer.path={folder}", f"run_dir={tmp_path / 'run'}"]
    words.append(f"data.packed={packed}")
    train(inherited(txlab.compose(words), words)[0])

    model = txlab.load(tmp_path / "run")
    tokenizer = model.tokenizer  # type: ignore[attr-defined]
    assert tokenizer.pad_id == tokenizer.eos_id
    template = Template(tokenizer)
    cuts = [(chat, n) for chat in chats for n in (1, 3)]
    prompts = [template.prompt(chat[:n]) for chat, n in cuts]
    sampling = Sampling(max_new_tokens=30, temperature=0.0)
    found = generate_text(model, tokenizer, prompts, sampling, end_ids=template.end_ids)
    for (chat, n), prompt, answer in zip(cuts, prompts, found, strict=True):
        assert answer.text == chat[n]["content"]
        assert answer.reason == "end token"
        whole = template.encode(chat).ids
        assert answer.tokens == whole[len(prompt) :][: len(answer.tokens)]
        assert answer.tokens[-1] == tokenizer.eos_id
        # SFT-05: the template writes it, and the tokenizer's settings say to add one.
        assert (prompt[0], prompt.count(tokenizer.bos_id)) == (tokenizer.bos_id, 1)
        assert (whole[0], whole.count(tokenizer.bos_id)) == (tokenizer.bos_id, 1)


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
