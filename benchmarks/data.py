"""Text to batches: how fast, in how much memory, beside the `tokenizers` library by itself.

    python -m benchmarks.data [--megabytes 200] [--pieces 8]

The corpus is the embedded one again and again, with other words at other places each time, so that
no cache of words knows it. A piece of it at a time is given to the library's `encode_batch_fast` in
batches of 1,000 documents, from memory, and then to txlab: read, checked, tokenised, written,
read through and opened as rows. Other programs on the machine slow both alike; medians of the
pieces' ratios are printed. Memory is that of a fresh process that prepares all of it, started for
each: as lines, as one text, as one line.

Besides the clock the processor's time is compared, of all threads together: it does not depend on
who else is at work.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PEAK = """
import sys, time
from txlab.data import Text, data
from txlab.data.tokenizer import BPE
path, cache, tokenizer = sys.argv[1:]
begin = time.perf_counter()
made = data.build(Text.Config(path=path, cache_dir=cache), BPE.Config(path=tokenizer), context=256)
made.prepare()
state = open("/proc/self/status").read()
peak = int(state.split("VmHWM:")[1].split()[0]) / 1024
seconds, tokens = time.perf_counter() - begin, made.facts['train_tokens']
print(f"{seconds:.1f} s, {peak:,.0f} MiB, {tokens:,} tokens")
"""
IMPORTS = """
import txlab.data
state = open("/proc/self/status").read()
print(f"{int(state.split('VmHWM:')[1].split()[0]) / 1024:,.0f} MiB")
"""


def varied(texts: list[str], megabytes: float, seed: int) -> Iterator[str]:
    """Documents of about this size together: every eighth word is another one, some are new."""
    source = random.Random(seed)
    words = sorted({word for text in texts for word in text.split()})
    left = megabytes * 1e6
    while left > 0:
        for text in texts:
            lines = []
            for line in text.split("\n"):
                found = line.split(" ")
                for place in range(source.randrange(8), len(found), 8):
                    word = source.choice(words)
                    fresh = source.random() < 0.1
                    found[place] = f"{word}{source.randrange(10**6)}" if fresh else word
                lines.append(" ".join(found))
            made = "\n".join(lines)
            yield made
            left -= len(made.encode())
            if left <= 0:
                return


@dataclass
class Span:
    """Seconds by the clock and of the processor."""

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> "Span":
        self._begin = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._begin[0]
        self.cpu = time.process_time() - self._begin[1]


def alone(library, texts: list[str]) -> Span:
    """The library without anything else."""
    with Span() as span:
        for start in range(0, len(texts), 1000):
            library.encode_batch_fast(texts[start : start + 1000], add_special_tokens=False)
    return span


def ours(file: Path, folder: Path, tokenizer) -> tuple[Span, Span]:
    """The first reading (digests, split), and all that follows until rows are open."""
    from txlab.data.blocks import Blocks
    from txlab.data.collection import Collection, Source
    from txlab.data.shards import open_shards

    with Span() as survey:
        collection = Collection([Source("a", str(file), [file], "text")], val_fraction=0.05)
        _ = collection.survey
    with Span() as rest:
        collection.write(folder, tokenizer, "benchmark")
        store = open_shards(folder, "train", n=1, vocab_size=tokenizer.vocab_size)
        Blocks(store, context=256, pad_id=tokenizer.pad_id).batch([0])
    return survey, rest


def throughput(texts: list[str], tokenizer, megabytes: float, pieces: int, folder: Path) -> None:
    found: dict[str, list[float]] = {}
    for piece in range(pieces):
        mine = list(varied(texts, megabytes / pieces, seed=piece))
        file = folder / f"{piece}.jsonl"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in mine))
        there = sum(len(text.encode()) for text in mine) / 1e6
        raw = alone(tokenizer._library, mine)
        survey, rest = ours(file, folder / str(piece), tokenizer)
        file.unlink()
        for name, value in (
            ("raw library, MB/s", there / raw.wall),
            ("raw library, MB/s of a core", there / raw.cpu),
            ("tokenised and packed, of it", raw.wall / rest.wall),
            ("the same, processor's time", raw.cpu / rest.cpu),
            ("with the first reading", raw.wall / (survey.wall + rest.wall)),
            ("the same, processor's time ", raw.cpu / (survey.cpu + rest.cpu)),
        ):
            found.setdefault(name, []).append(value)
    for name, values in found.items():
        print(f"{name:28s} {statistics.median(values):.3f}", flush=True)


def memory(texts: list[str], tokenizer_file: Path, megabytes: float, folder: Path) -> None:
    def run(code: str, *words: str) -> str:
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    print(f"imports alone: {run(IMPORTS)}")
    for kind, name in (("lines", "a.jsonl"), ("one text", "b.txt"), ("one line", "c.jsonl")):
        file = folder / name
        with file.open("w") as stream:
            whole = kind == "one line"
            stream.write('{"text": "' if whole else "")
            for text in varied(texts, megabytes, seed=0):
                escaped = json.dumps(text)
                stream.write(
                    escaped[1:-1] if whole
                    else text + "\n" if kind == "one text"
                    else f'{{"text": {escaped}}}\n'
                )  # fmt: skip
            stream.write('"}\n' if whole else "")
        said = run(PEAK, str(file), str(folder / f"cache-{name}"), str(tokenizer_file))
        print(f"{file.stat().st_size / 1e6:.0f} MB as {kind}: {said}")
        file.unlink()


def loader(folder: Path, tokenizer_file: Path) -> None:
    """Rows of the default recipe, as the train loop takes them."""
    from txlab.data import Text, data
    from txlab.data.tokenizer import BPE

    for packing in ("blocks", "best_fit"):
        config = Text.Config(cache_dir=str(folder / "cache"), batch_size=8, packing=packing)
        made = data.build(config, BPE.Config(path=str(tokenizer_file)), context=256)
        made.prepare()
        rates = []
        for start in (0, 300, 600, 900, 1200):
            begin = time.perf_counter()
            for _ in made.step_batches(start, start + 300):
                pass
            rates.append(300 * 8 * 256 / (time.perf_counter() - begin))
        print(f"loader, {packing}: {statistics.median(rates):,.0f} tokens/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--pieces", type=int, default=8)
    parser.add_argument("--no-memory", action="store_true")
    args = parser.parse_args()
    from txlab.data.corpus import embedded
    from txlab.data.tokenizer import BPE

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = embedded(folder)
        texts = [json.loads(line)["text"] for line in corpus.file.read_text().splitlines()]
        tokenizer = BPE(BPE.Config(vocab_size=4096))
        tokenizer.train(texts)
        tokenizer.save(folder / "tokenizer.json")
        loader(folder, folder / "tokenizer.json")
        throughput(texts, tokenizer, args.megabytes, args.pieces, folder)
        if not args.no_memory:
            memory(texts, folder / "tokenizer.json", args.megabytes, folder)


if __name__ == "__main__":
    main()
