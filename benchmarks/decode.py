"""Decoding on the cache against transformers' `generate`, same weights, greedy, interleaved.

    python -m benchmarks.decode [--rounds 7] [--batch 1 8] [--prompt 32] [--new 128]

Prints for each batch size, with our step eager and compiled (compilation not counted; transformers
as its `generate` comes), the median tokens/s of both and the median of the rounds' ratios, after
checking that both give the same tokens. The shape is the pretrain recipe's.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from tests.parity.mapping import twin
from txlab.models.generate import generate
from txlab.models.sampling import Sampling


def peer() -> LlamaForCausalLM:
    """The recipe's shape as transformers builds it; weights large enough for varied text."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=1,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.1,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).eval()
    model.generation_config = GenerationConfig(do_sample=False, use_cache=True, pad_token_id=0)
    return model


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(batch: int, prompt: int, new: int, rounds: int, compiled: bool) -> None:
    """Print one line: both speeds and their ratio at this batch size."""
    theirs = peer()
    ours = twin(theirs)
    tokens = torch.randint(4096, (batch, prompt))
    rows = tokens.tolist()

    def run_theirs() -> list[list[int]]:
        out = theirs.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, do_sample=False
        )
        return out[:, prompt:].tolist()

    def run_ours() -> list[list[int]]:
        sampling = Sampling(max_new_tokens=new, temperature=0)
        return [answer.tokens for answer in generate(ours, rows, sampling, compiled=compiled)]

    same = run_theirs() == run_ours()
    times = [(seconds(run_theirs), seconds(run_ours)) for _ in range(rounds)]
    rates = [batch * new / statistics.median(column) for column in zip(*times, strict=True)]
    ratio = statistics.median(a / b for a, b in times)
    how = "compiled" if compiled else "eager"
    print(
        f"batch {batch}: transformers {rates[0]:,.0f} tokens/s, txlab {how} {rates[1]:,.0f}: "
        f"{ratio:.2f}x, {'same tokens' if same else 'TOKENS DIFFER'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for batch in args.batch:
        for compiled in (False, True):
            compare(batch, args.prompt, args.new, args.rounds, compiled)


if __name__ == "__main__":
    main()
