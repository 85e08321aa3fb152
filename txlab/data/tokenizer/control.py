"""Control tokens of the tokenizers that txlab trains itself, and the chat template made of them."""

BOS, EOS, PAD, START, END = CONTROL = ("<|bos|>", "<|eos|>", "<|pad|>", "<|start|>", "<|end|>")
"""The first ids, in this order: document, padding, turn. All are there from the start, so that a
model trained on text can go on with chats as it is."""

SPECIAL = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
"""The names that a chat template may use for them."""

TEMPLATE = (
    f"{BOS}{{% for message in messages %}}{START}{{{{ message.role }}}}\n{{{{ message.content }}}}"
    f"{END}\n{{% endfor %}}{{% if add_generation_prompt %}}{START}assistant\n{{% endif %}}"
)
"""One turn a message: `<|start|>role`, the content on the next line, `<|end|>`."""
