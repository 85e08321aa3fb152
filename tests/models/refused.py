"""Which attention, positional scheme and backend refuse each other: all exceptions in one place."""

SCORED = ("alibi", "t5")
"""Schemes that add a bias to attention scores."""


def refusal(attn: str, pos: str, backend: str) -> str | None:
    """Words of the line that refuses the three together; None where they go together."""
    if attn == "linear" and pos in SCORED:
        return "adds a bias to the scores inside a softmax"
    if attn == "linear" and backend != "auto":
        return "computes softmax attention, which this is not"
    if attn == "flash" and backend not in ("auto", "flash"):
        return "it pins the fused kernel"
    if attn == "flash" and pos in SCORED:
        return "which the fused kernel has no place for"
    if backend == "flash" and pos in SCORED:
        return "cannot compute score"
    return None
