"""Chat templates of the kinds that models come with, and tokenizers that have their tokens."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from txlab.data.chat.messages import Message
from txlab.data.chat.template import Template
from txlab.data.tokenizer import Pretrained, Tokenizer
from txlab.data.tokenizer.control import TEMPLATE

Way = Callable[[str], str]


def keep(text: str) -> str:
    return text


@dataclass(frozen=True)
class Family:
    """A template, and what is known about the texts that it writes."""

    template: str
    end: str
    """Control token that ends an answer."""
    lead: str = ""
    """White space before an answer that a model writes itself."""
    tail: str = ""
    """White space between an answer and its end."""
    strip: Way = keep
    """What it does to an answer."""
    system: bool = True
    """Whether it takes a system message."""
    alternates: bool = False
    """Whether it refuses two turns of one side in a row."""
    bos: bool = True
    """Whether it writes the bos token."""

    def answers(self, messages: list[Message]) -> str:
        """What is learned of a chat."""
        said = (m["content"] for m in messages if m["role"] == "assistant")
        return "".join(f"{self.lead}{self.strip(text)}{self.tail}{self.end}" for text in said)


ALTERNATE = (
    "{% set first = 1 if messages[0].role == 'system' else 0 %}{% for m in messages[first:] %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('turns have to alternate') }}{% endif %}{% endfor %}"
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system message') }}{% endif %}"
)
FAMILIES = {
    "txlab": Family(TEMPLATE, "<|end|>"),
    "chatml": Family(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "<|im_end|>",
        bos=False,
    ),
    "chatml with a system of its own": Family(
        "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "<|im_end|>",
        bos=False,
    ),
    "trims": Family(
        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content | trim }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "<|im_end|>",
        strip=str.strip,
    ),
    "trims answers alone": Family(
        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' %}{{ m.content.lstrip('\n') }}{% else %}{{ m.content }}"
        "{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "<|im_end|>",
        strip=lambda text: text.lstrip("\n"),
    ),
    "llama-2": Family(
        ALTERNATE
        + "{% set system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' if first else '' %}"
        "{% for m in messages[first:] %}{% if m.role == 'user' %}"
        "{{ bos_token + '[INST] ' + (system if loop.first else '') }}"
        "{{ m.content.strip() }} [/INST]"
        "{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
        "</s>",
        lead=" ",
        tail=" ",
        strip=str.strip,
        alternates=True,
    ),
    "llama-3": Family(
        "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
        "<|start_header_id|>{{ m.role }}{{ '<|end_header_id|>\n\n' + m.content | trim }}<|eot_id|>"
        "{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        "<|eot_id|>",
        strip=str.strip,
    ),
    "mistral": Family(
        NO_SYSTEM + ALTERNATE + "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
        "[INST] {{ m.content }} [/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}"
        "{% endfor %}",
        "</s>",
        system=False,
        alternates=True,
    ),
    "zephyr": Family(
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
        "</s>",
        bos=False,
    ),
    "gemma": Family(
        NO_SYSTEM + ALTERNATE + "{{ bos_token }}{% for m in messages %}"
        "{% set role = 'model' if m.role == 'assistant' else m.role %}"
        "{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        "<end_of_turn>",
        strip=str.strip,
        system=False,
        alternates=True,
    ),
}
SPECIAL = [
    *("<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|bos|>"),
    *(
        "<|end_header_id|>",
        "<|eot_id|>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<|start|>",
        "<|end|>",
    ),
]
TEXTS = [
    "Hello there, system user assistant: be helpful and say 5 or 55.\n\n" * 9,
    "[INST] one [/INST] two three <|user|>\nfour <|assistant|>\nfive\n" * 9,
]


def byte_level() -> Library:
    """Byte-level BPE with merges, as of GPT-2 and Llama 3."""
    made = Library(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore
    made.decoder = decoders.ByteLevel()  # type: ignore
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet),
    )
    return made


def bytes_alone() -> Library:
    made = Library(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore
    made.decoder = decoders.ByteLevel()  # type: ignore
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [], trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    return made


def metaspace() -> Library:
    """BPE over words that carry their space in front, other characters as bytes: Llama 2."""
    made = Library(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence(  # type: ignore
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    made.decoder = decoders.Sequence(  # type: ignore
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    spare = [f"<0x{byte:02X}>" for byte in range(256)]
    lines = [line for text in TEXTS for line in text.split("\n")]
    made.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=620, special_tokens=[*SPECIAL, *spare])
    )
    parts = json.loads(made.to_str())
    parts["added_tokens"] = [t for t in parts["added_tokens"] if t["content"] not in spare]
    return Library.from_str(json.dumps(parts))


EXACT = {"byte_level": byte_level, "bytes": bytes_alone}
"""Every text survives them as it is."""
MAKERS = {**EXACT, "metaspace": metaspace}


def tokenizer(folder: Path, name: str) -> Pretrained:
    """One of `MAKERS`, as a model of Hugging Face would bring it along."""
    MAKERS[name]().save(str(folder / "tokenizer.json"))
    config = Pretrained.Config(path=str(folder / "tokenizer.json"), bos="<s>", eos="</s>")
    return Pretrained.from_path(config)


def template(made: Tokenizer, family: Family) -> Template:
    """The family's template with this tokenizer; txlab's own has a bos of its own."""
    mine = copy.copy(made)
    mine.template = family.template
    return Template(mine)
