"""The tokenizer's files of a directory: a byte-level BPE with turn markers and a template."""

from pathlib import Path

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB = 256 + len(SPECIAL)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def add_tokenizer(folder: Path, *, adds_bos: bool = False) -> None:
    """One token a byte, and three special ones."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*SPECIAL, *letters]
    library = Library(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore
    library.decoder = decoders.ByteLevel()  # type: ignore
    library.add_special_tokens(SPECIAL)
    if adds_bos:
        library.post_processor = processors.TemplateProcessing(  # type: ignore
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    made = PreTrainedTokenizerFast(
        tokenizer_object=library,
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    made.chat_template = TEMPLATE
    made.save_pretrained(folder)
