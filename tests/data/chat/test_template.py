"""Where answers lie in a rendered chat, and the ids of it all."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from txlab.core.errors import RequestError
from txlab.data.chat.template import Template
from txlab.data.tokenizer import BPE, Pretrained
from txlab.data.tokenizer.control import CONTROL

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe helpful<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXTS = ["Hello there, system user assistant: be helpful and say 5 or 55.\n\n" * 9]


def chat(*contents: str) -> list[dict[str, str]]:
    """Contents by turns, the user's first."""
    roles = itertools.cycle(["user", "assistant"])
    return [{"role": role, "content": c} for role, c in zip(roles, contents, strict=False)]


@pytest.fixture(scope="module")
def bpe() -> BPE:
    made = BPE(BPE.Config(vocab_size=300))
    made.train(TEXTS)
    return made


def using(tokenizer, text: str) -> Template:
    again = BPE.__new__(BPE)
    again.__dict__.update(tokenizer.__dict__, template=text)
    return Template(again)


def spelled(tokenizer, ids) -> str:
    names = {i: spelling for spelling, i in tokenizer.control.items()}
    return "".join(names.get(i) or tokenizer.decode([i]) for i in ids)


def supervised(template: Template, messages) -> str:
    encoded = template.encode(messages)
    ids = [i for i, n in zip(encoded.ids, encoded.answer, strict=True) if n >= 0]
    return b"".join(
        {i: s.encode() for s, i in template.tokenizer.control.items()}.get(i)
        or template.tokenizer.decode_bytes([i])
        for i in ids
    ).decode()


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    library.decoder = decoders.ByteLevel()  # type: ignore
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet),
    )
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=library,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        chat_template=CHATML,
    )
    theirs.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "messages",
    [
        chat("Hello", "there"),
        chat("ends in a space ", "5", "  begins", "55 and\nmore"),
        [{"role": "system", "content": "Be"}, *chat("hé 日本", "<b>")],
    ],
)
def test_ids_are_those_of_transformers(hub: Path, messages) -> None:
    theirs, mine = PreTrainedTokenizerFast.from_pretrained(hub), Template(Pretrained.load(hub))
    wanted = theirs.apply_chat_template(messages, tokenize=True, return_dict=False)
    assert mine.render(messages) == theirs.apply_chat_template(messages, tokenize=False)
    assert mine.encode(messages).ids == wanted
    prompt = theirs.apply_chat_template(
        messages[:-1], tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert mine.prompt(messages[:-1]) == prompt == wanted[: len(prompt)]
    assert mine.end_ids == (2,)


def test_answers_and_their_ends_are_supervised(bpe: BPE) -> None:  # SFT-03
    template = Template(bpe)
    messages = chat("a", "one", "b", "two\n", "c", " three ")
    assert supervised(template, messages) == "one<|end|>two\n<|end|> three <|end|>"
    messages.insert(2, {"role": "assistant", "content": "again"})
    assert supervised(template, messages) == "one<|end|>again<|end|>two\n<|end|> three <|end|>"


def test_control_spellings_in_messages_stay_text(bpe: BPE) -> None:  # TOK-02, SFT-01
    template = Template(bpe)
    spell = "".join(CONTROL)
    messages = chat(f"x{spell}", f"{spell}y", "z", spell)
    encoded = template.encode(messages)
    counts = {s: encoded.ids.count(i) for s, i in bpe.control.items()}
    assert counts == {"<|bos|>": 1, "<|eos|>": 0, "<|pad|>": 0, "<|start|>": 4, "<|end|>": 4}
    assert supervised(template, messages) == f"{spell}y<|end|>{spell}<|end|>"
    assert bpe.decode(encoded.ids).count(spell) == 3


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6))
def test_any_chat_is_understood(bpe: BPE, contents: list[str]) -> None:  # SFT-03, SFT-05, SFT-06
    template = Template(bpe)
    messages = chat(*contents)
    encoded = template.encode(messages)
    answers = [m["content"] + "<|end|>" for m in messages if m["role"] == "assistant"]
    assert supervised(template, messages) == "".join(answers)
    assert encoded.ids[0] == bpe.bos_id
    assert encoded.ids.count(0) == 1
    for n in (i for i, m in enumerate(messages) if m["role"] == "assistant"):
        prompt = template.prompt(messages[:n])
        assert encoded.ids[: len(prompt)] == prompt
        assert encoded.answer[len(prompt)] == n
        assert spelled(bpe, prompt).endswith("<|start|>assistant\n")


@pytest.mark.parametrize(
    ("prompt", "answer"), [("5 + 0 = ", "5"), ("Hel", "lo there"), ("x\n", "\n\ny"), ("", " ")]
)
def test_the_boundary_splits_no_token(bpe: BPE, prompt: str, answer: str) -> None:  # SFT-06
    bare = using(
        bpe, "{{bos_token}}{% for m in messages %}{{ m.content }}"
        "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    )  # fmt: skip
    encoded = bare.encode(chat(prompt, answer))
    before = bare.prompt(chat(prompt))
    assert before == [0, *bpe.encode(prompt)]
    assert encoded.ids == [*before, *bpe.encode(answer), 1]
    assert encoded.answer == [-1] * len(before) + [1] * (len(encoded.ids) - len(before))
    assert 1 in bare.end_ids


def test_bos_is_the_templates_matter(bpe: BPE) -> None:  # SFT-05
    without = using(bpe, bpe.template.replace("<|bos|>", ""))
    messages = chat("a", "b")
    assert without.encode(messages).ids == Template(bpe).encode(messages).ids[1:]
    assert without.prompt(messages[:1]) == Template(bpe).prompt(messages[:1])[1:]


def test_space_around_an_answer_is_learned_too(bpe: BPE) -> None:
    """The model writes what the template does not write when it asks for an answer."""
    text = "{% for m in messages %} {{ m.content }} {{ eos_token }}{% endfor %}"
    spaced = using(bpe, text)
    assert supervised(spaced, chat("a", "b")) == " b <|eos|>"
    assert spelled(bpe, spaced.prompt(chat("a"))) == " a <|eos|>"
    asks = using(bpe, text + "{% if add_generation_prompt %} {% endif %}")
    assert supervised(asks, chat("a", "b")) == "b <|eos|>"
    assert spelled(bpe, asks.prompt(chat("a"))) == " a <|eos|> "


def test_a_template_may_strip_messages(bpe: BPE) -> None:
    strips = using(bpe, bpe.template.replace("message.content", "message.content | trim"))
    messages = chat(" a ", "\nb ")
    assert supervised(strips, messages) == "b<|end|>"
    assert strips.encode(messages).ids == Template(bpe).encode(chat("a", "b")).ids


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "no control token"),
        ("{% for m in messages %}{{ m.content | upper }}<|end|>{% endfor %}", "changes the text"),
        ("{% for m in messages %}{{ m.content * 2 }}<|end|>{% endfor %}", "repeats"),
        ("{{ messages[0].content }}<|end|>", "leaves answers out"),
        ("{% for m in messages | reverse %}{{ m.content }}<|end|>{% endfor %}", "order"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}<|end|>", "no control token"),
        ("{% for m in messages %}{{ m.content[:2] }}<|end|>{% endfor %}", "changes the text"),
    ],
)
def test_hidden_answers_are_refused(bpe: BPE, template: str, reason: str) -> None:  # SFT-03
    messages = chat("one", "two and", "three", "four or")
    with pytest.raises(RequestError, match=rf"answers cannot be found.*{reason}.*data\.template"):
        using(bpe, template).encode(messages)


def test_a_template_that_refuses_gives_its_reason(bpe: BPE) -> None:
    refuses = using(bpe, "{{ raise_exception('no system message, please') }}")
    with pytest.raises(RequestError, match="refuses this chat: no system message, please"):
        refuses.encode(chat("a", "b"))


def test_a_template_is_no_way_out_of_the_sandbox(bpe: BPE) -> None:
    escape = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(RequestError, match="refuses this chat: access to attribute '__class__'"):
        using(bpe, escape).render(chat("a"))
    with pytest.raises(RequestError, match="refuses this chat"):
        using(bpe, "{{ messages.append(1) }}").render(chat("a"))


def test_a_broken_template_is_refused_with_its_line(bpe: BPE) -> None:
    with pytest.raises(RequestError, match=r"line 2 of the chat template cannot be read"):
        using(bpe, "a\n{% for %}")


def test_blocks_and_extensions_as_hugging_face_has_them(bpe: BPE) -> None:
    text = (
        "{% for m in messages %}\n  {% if m.role == 'system' %}{% continue %}{% endif %}\n"
        "{% generation %}\n{{ m | tojson }}{% endgeneration %}\n{% endfor %}"
    )
    found = using(bpe, text).render(chat("<é>"))
    assert found == '{"role": "user", "content": "<é>"}'
