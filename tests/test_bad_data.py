"""Chats, pairs, templates and starts that cannot be used, on the command line: refused in one line
with status 2, or left out and counted; nothing is written for a refused run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.test_plugin import run

Entries = list[dict[str, Any]]
TINY = [
    *("debug=fast", "train.steps=1", "train.sample=null", "trainer=cpu", "data.cache_dir=cache"),
    *("data.val_fraction=0.3", "model.init_from=base"),
]
HIDES = "{{ messages[0].content }}"
ENDLESS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def chat(*said: str) -> dict[str, Any]:
    """`role: content` of each message."""
    parts = [text.split(": ", 1) for text in said]
    return {"messages": [{"role": role, "content": content} for role, content in parts]}


def pair(prompt: str, chosen: str, rejected: str) -> dict[str, Any]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


CHATS = [chat(f"user: q{n}", "assistant: yes") for n in range(8)]
PAIRS = [pair(f"q{n}", "yes", "no") for n in range(8)]
LONG = "a long prompt " * 30
PERSON = {"prompt": [{"role": "human", "content": "x"}], "chosen": "a", "rejected": "b"}

REFUSED: dict[str, tuple[Entries, list[str], str]] = {
    "role": ([*CHATS, chat("gpt: x")], [], "line 9: message 1: unknown role 'gpt'"),
    "order": ([*CHATS, chat("assistant: x", "user: y")], [], "line 9: message 1 is the assis"),
    "system": ([*CHATS, chat("user: x", "system: y")], [], "line 9: message 2 is the system's"),
    "unanswered": ([chat("user: x")] * 2, [], "nothing to train on: of 2 items, 2 no answer"),
    "cut away": ([chat(f"user: {LONG}", "assistant: x")], [], "1 answer cut away"),
    "too long": ([chat(f"user: {LONG}", "assistant: x")], ["data.too_long=refuse"], "line 1: "),
    "hides": (CHATS, ["data.template=hides.jinja"], "it leaves answers out"),
    "endless": (CHATS, ["data.template=endless.jinja"], "no control token follows an answer"),
    "targets": (CHATS, ["adapter=lora", "adapter.targets=[q,qq]"], "qq matches no linear"),
    "vocabulary": (CHATS, ["model.vocab_size=999"], "wrong shape: embed.weight"),
    "tokenizer": (CHATS, ["tokenizer=bpe"], "model.init_from brings its tokenizer along"),
    "chats for pairs": (CHATS, ["+recipe=dpo"], "line 1: no key 'chosen'"),
    "pairs for chats": (PAIRS, ["+recipe=sft"], "line 1: no key 'messages' or"),
    "pair role": ([*PAIRS, PERSON], [], "line 9: message 1: unknown role 'human'"),
    "empty side": (
        [*PAIRS, pair("q", "", "x")],
        ["data.unusable=refuse"],
        "line 9: empty side; data.unusable=drop leaves it out",
    ),
    "equal sides": (
        [*PAIRS, pair("q", "x", "x")],
        ["data.unusable=refuse"],
        "line 9: equal sides; data.unusable=drop leaves it out",
    ),
    "no pair": ([pair("q", "x", "x"), pair("r", "", "x")], [], "1 empty side, 1 equal sides"),
    "long prompt": ([pair(LONG, "x", "y")], [], "of 1 items, 1 prompt too long"),
    "another vocabulary": (PAIRS, ["model.vocab_size=999"], "wrong shape: embed.weight"),
}
DROPPED: dict[str, tuple[Entries, str]] = {
    "pairs": (
        [
            *PAIRS,
            pair("a", "", "x"),
            pair("b", "x", " "),
            pair("c", "x", "x"),
            pair(LONG, "x", "y"),
        ],
        "2 empty side, 1 equal sides, 1 prompt too long; of 12 items",
    ),
    "chats": (
        [*CHATS, chat("user: a"), chat(f"user: {LONG}", "assistant: b")],
        "1 answer cut away, 1 no answer; of 10 items",
    ),
}


def kind(entries: Entries) -> str:
    return "dpo" if "chosen" in entries[0] else "sft"


@pytest.mark.slow
def test_refused_in_one_line_or_left_out_and_counted(tmp_path: Path):
    """All in one process, since each start costs seconds."""
    (tmp_path / "hides.jinja").write_text(HIDES)
    (tmp_path / "endless.jinja").write_text(ENDLESS)
    base = [word for word in TINY if "init_from" not in word]
    lines = [[*base, "data=chat", "data.n_train=20", "data.n_val=4", "run_dir=base"]]
    cases = [(entries, words) for entries, words, _ in REFUSED.values()]
    cases += [(entries, []) for entries, _ in DROPPED.values()]
    for number, (entries, words) in enumerate(cases):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        recipe = [] if "+recipe" in "".join(words) else [f"+recipe={kind(entries)}"]
        lines.append([*recipe, *TINY, f"data.path={file.name}", f"run_dir=out-{number}", *words])
    first, *said = run(lines, tmp_path, [])
    assert first.splitlines()[-1] == "-> 0", first
    made = {path.name for path in tmp_path.glob("out-*")}
    assert made == {f"out-{n}" for n in range(len(REFUSED), len(cases))}
    for name, text in zip(REFUSED, said, strict=False):
        *before, message, status = text.splitlines()
        assert all(line.startswith("surgery ") for line in before), name
        assert message.startswith("txlab: error: "), name
        assert REFUSED[name][2] in message, name
        assert status == "-> 2", name
    for name, text in zip(DROPPED, said[len(REFUSED) :], strict=True):
        assert text.splitlines()[-1] == "-> 0", name
        assert f"dropped     {DROPPED[name][1]}" in text.splitlines(), name
