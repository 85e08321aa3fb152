"""Control tokens of the tokenizers that txlab trains itself, and the chat template made of them."""

import re

BOS, EOS, PAD, START, END = CONTROL = ("<|bos|>", "<|eos|>", "<|pad|>", "<|start|>", "<|end|>")
"""The first ids, in this order: document, padding, turn. All are there from the start, so that a
model trained on text can go on with chats as it is."""

UNKNOWN = "<|unk|>"
"""Right after those, in vocabularies that have it: text that they cannot express."""

SPECIAL = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
"""The names that a chat template may use for them."""

NAMED = {UNKNOWN: "unk_token", "<|mask|>": "mask_token"}
"""Names of those that not every tokenizer has."""

SPELLING = re.compile(r"<\|?[a-zA-Z][a-zA-Z0-9_-]*\|?>")
"""What a control token looks like: no piece of ordinary text holds letters between such marks."""

TEMPLATE = (
    f"{BOS}{{% for message in messages %}}{START}{{{{ message.role }}}}\n{{{{ message.content }}}}"
    f"{END}\n{{% endfor %}}{{% if add_generation_prompt %}}{START}assistant\n{{% endif %}}"
)
"""One turn a message: `<|start|>role`, the content on the next line, `<|end|>`."""
