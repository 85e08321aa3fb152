"""Random chats in every kind of template: exactly the answers and their ends are learned."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.data.chat.families import EXACT, FAMILIES, MAKERS, SPECIAL, Family, template, tokenizer
from txlab.core.errors import RequestError
from txlab.data.chat.messages import Message
from txlab.data.chat.template import Encoded, Template
from txlab.data.tokenizer import Tokenizer

Turn = tuple[str, str]
SPACES = st.sampled_from(["", " ", "\n", "  ", " \n", "\n\n", "\t"])
WORDS = st.sampled_from(
    [
        "one",
        "5",
        "answer",
        "Hello",
        "é",
        "日本",
        "🙂",
        "user",
        "assistant\n",
        "[/INST]",
        "<|",
        *SPECIAL,
    ]
)
CONTENTS = st.one_of(
    st.text(max_size=8),
    st.builds(lambda a, words, b: a + " ".join(words) + b, SPACES,
              st.lists(WORDS, max_size=4), SPACES),
)  # fmt: skip
SIDES = st.lists(st.tuples(st.booleans(), CONTENTS), min_size=1, max_size=6)


def chat(
    family: Family, first: str, system: str | None, sides: list[tuple[bool, str]]
) -> list[Message]:
    """Turns of either side, alternating where the family wants it; a user begins."""
    found: list[Message] = []
    if system is not None and family.system:
        found.append({"role": "system", "content": system})
    found.append({"role": "user", "content": first})
    for number, (assistant, content) in enumerate(sides):
        mine = number % 2 == 0 if family.alternates else assistant
        found.append({"role": "assistant" if mine else "user", "content": content})
    return found


def spelled(made: Tokenizer, ids: list[int]) -> str:
    names = {i: spelling.encode() for spelling, i in made.control.items()}
    return b"".join(names.get(i) or made.decode_bytes([i]) for i in ids).decode()


def learned(made: Tokenizer, encoded: Encoded) -> str:
    ids = [i for i, n in zip(encoded.ids, encoded.answer, strict=True) if n >= 0]
    return spelled(made, ids)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return {name: tokenizer(tmp_path_factory.mktemp(name), name) for name in MAKERS}


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("name", FAMILIES)
@given(CONTENTS, st.none() | CONTENTS, SIDES)
@example("q ", None, [(True, "one"), (True, "two")])
@example("q", " s ", [(True, " one "), (False, "\nr"), (True, "\n\ntwo\n")])
@example("", "", [(True, ""), (False, ""), (True, " ")])
@example(
    "x</s><|im_end|>", None, [(True, "<|im_end|></s><|eot_id|><end_of_turn>"), (False, "[/INST]")]
)
def test_answers_and_their_ends_are_learned(
    tokenizers: dict[str, Tokenizer], name: str, kind: str, first: str, system: str | None,
    sides: list[tuple[bool, str]],
) -> None:  # fmt: skip
    """SFT-03, SFT-05, SFT-06, TOK-02."""
    family, made = FAMILIES[name], tokenizers[kind]
    mine = template(made, family)
    messages = chat(family, first, system, sides)
    encoded = mine.encode(messages)
    # What is learned: the answers with what ends them, nothing of a prompt.
    assert learned(made, encoded) == family.answers(messages)
    # The ids are those of the whole rendered text ...
    rendered = mine.render(messages)
    assert spelled(made, encoded.ids) == rendered
    # ... where what a message spells is no control token, so that turns cannot be forged.
    blank = [{**message, "content": "x"} for message in messages]
    assert control(made, encoded.ids) == control(made, mine.encode(blank).ids)
    bos = made.special["bos_token"] if name != "txlab" else "<|bos|>"
    assert (encoded.ids[0] == made.control[bos]) == family.bos
    assert encoded.ids.count(made.control[bos]) == (
        family.bos if name != "llama-2" else sum(m["role"] == "user" for m in messages)
    )
    prompts_are_prefixes(mine, messages, encoded)


def control(made: Tokenizer, ids: list[int]) -> list[int]:
    return [i for i in ids if i in made.control.values()]


def prompts_are_prefixes(mine: Template, messages: list[Message], encoded: Encoded) -> None:
    """What a model is asked with is what it was trained on before the answer."""
    for number in (n for n, m in enumerate(messages) if m["role"] == "assistant"):
        prompt = mine.prompt(messages[:number])
        assert encoded.ids[: len(prompt)] == prompt
        assert encoded.answer[len(prompt)] == number
        assert number not in encoded.answer[: len(prompt)]


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_prompt_is_what_the_template_asks_with(
    tokenizers: dict[str, Tokenizer], name: str, kind: str
) -> None:
    family, made = FAMILIES[name], tokenizers[kind]
    mine = template(made, family)
    for contents in (["Hello there "], ["a", "b", "\nc"]):
        turns = zip(itertools.cycle(["user", "assistant"]), contents, strict=False)
        messages = [{"role": role, "content": content} for role, content in turns]
        asked = mine.render(messages, generation_prompt=True)
        assert spelled(made, mine.prompt(messages)) == asked


PLAIN = [
    ["Hello there", "5"],
    ["q", "one two", "and say?", "three\n\nfour 55", "so", "be helpful."],
    ["system user assistant:", "Hello", "one\n", "five é 日本"],
]


APART = {("llama-3", "byte_level")}
"""Here "\\n\\n" is one token where a prompt ends, and two before a word: texts are cut there."""


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", FAMILIES)
def test_ids_are_those_of_the_whole_text(
    tokenizers: dict[str, Tokenizer], name: str, kind: str
) -> None:
    """As a model was trained that came with template and tokenizer (SFT-06)."""
    family, made, library = FAMILIES[name], tokenizers[kind], MAKERS[kind]()
    mine = template(made, family)

    def theirs(text: str) -> list[int]:
        return library.encode(text, add_special_tokens=False).ids

    for contents in PLAIN:
        turns = zip(itertools.cycle(["user", "assistant"]), contents, strict=False)
        messages = [{"role": role, "content": content} for role, content in turns]
        encoded = mine.encode(messages)
        prompts_are_prefixes(mine, messages, encoded)
        assert learned(made, encoded) == family.answers(messages)
        asked, whole = mine.render(messages[:-1], generation_prompt=True), mine.render(messages)
        if (name, kind) in APART:
            assert theirs(whole)[: len(theirs(asked))] != theirs(asked)
        else:
            assert encoded.ids == theirs(whole)
            assert mine.prompt(messages[:-1]) == theirs(asked)


@given(CONTENTS, SIDES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_space_in_front_is_all_that_a_word_tokenizer_adds(
    tokenizers: dict[str, Tokenizer], name: str, first: str, sides: list[tuple[bool, str]]
) -> None:
    """Where an answer cannot be told from its prompt in one piece, it is a text of its own."""
    family, made = FAMILIES[name], tokenizers["metaspace"]
    mine = template(made, family)
    messages = chat(family, first, None, sides)
    encoded = mine.encode(messages)
    prompts_are_prefixes(mine, messages, encoded)
    for number in (n for n, m in enumerate(messages) if m["role"] == "assistant"):
        ids = [i for i, n in zip(encoded.ids, encoded.answer, strict=True) if n == number]
        wanted = family.answers(messages[number : number + 1]).replace("\u2581", " ")
        assert spelled(made, ids).removeprefix(" ") == wanted.removeprefix(" ")


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_family_does_not_take_is_refused(
    tokenizers: dict[str, Tokenizer], name: str
) -> None:
    family = FAMILIES[name]
    mine = template(tokenizers["bytes"], family)
    user, answer = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    twice = [user, answer, answer]
    if family.alternates:
        with pytest.raises(RequestError, match="refuses this chat: turns have to alternate"):
            mine.encode(twice)
    else:
        assert {*mine.encode(twice).answer} == {-1, 1, 2}
    system = [{"role": "system", "content": "s"}, user, answer]
    if family.system:
        assert "s" in mine.render(system)
    else:
        with pytest.raises(RequestError, match="refuses this chat: no system message"):
            mine.encode(system)
