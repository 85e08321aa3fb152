"""Learning a vocabulary from much text, and encoding: time, peak memory, the library by itself.

    python -m benchmarks.vocabulary [--mb 200] [--texts lines,files,line,solid] [--tokenizers bpe]
    python -m benchmarks.vocabulary --library --mb 20
    python -m benchmarks.vocabulary --encode

Texts of up to two million made-up words by a Zipf law: `lines` of twelve words, the same in
many `files`, all in one `line`; `solid` has no white space at all. Each training has a process.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
WORDS = 2_000_000


def word(rank: int) -> str:
    """The word of this rank, frequent ones short."""
    rank, spelled = rank % WORDS, ""
    while rank or not spelled:
        rank, letter = divmod(rank, 26)
        spelled += LETTERS[letter]
    return spelled


def make(folder: Path, kind: str, mb: int) -> list[Path]:
    """Files of the text, about `mb` million bytes in all."""
    source, found, size, count = np.random.default_rng(0), [], 0, 0
    folder.mkdir(parents=True)
    stream = None
    while size < mb * 1_000_000:
        if stream is None or (kind == "files" and size > len(found) * mb * 10_000):
            if stream:
                stream.close()
            found.append(folder / f"{len(found):03d}.txt")
            stream = found[-1].open("w", encoding="utf-8")
        if kind == "solid":
            text = "".join(LETTERS[i] for i in (source.beta(1, 3, 1 << 18) * 26).astype(int))
        else:
            drawn = [word(int(rank)) for rank in source.zipf(1.15, 120_000)]
            ends = "\n" if kind != "line" else " "
            text = "".join(w + (ends if (count + i) % 12 == 11 else " ") for i, w in
                           enumerate(drawn)).replace(" \n", "\n")  # fmt: skip
            count += len(drawn)
        size += stream.write(text)
    if stream:
        stream.close()
    return found


def peak() -> float:
    """Most memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def read(files: list[Path]) -> Iterator[str]:
    return (file.read_text(encoding="utf-8") for file in files)


def learned(name: str, files: list[Path], size: int) -> dict[str, Any]:
    """Train in this process."""
    from txlab.data.tokenizer import tokenizer

    option = tokenizer.option(name)
    made = tokenizer.build(option.config(vocab_size=size))
    begin, before = time.perf_counter(), peak()
    made.train(read(files))
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "before": before, "peak": peak(), "tokens": made.vocab_size,
            "sampled": made.sampled, "fingerprint": made.fingerprint[:12]}  # fmt: skip


def by_the_library(files: list[Path], size: int) -> dict[str, Any]:
    """Train as one would without us: the library counts, on the same pieces."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from txlab.data.tokenizer.trained import splitter

    library: Any = Tokenizer(models.BPE())
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.pre_tokenizer = pre_tokenizers.Sequence([splitter(), letters])
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False)
    begin, before = time.perf_counter(), peak()
    library.train_from_iterator(read(files), trainer)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "before": before, "peak": peak(), "tokens": size}


def encoding() -> None:
    """Share of the raw rate that `encode_batch` reaches, by processor time, in turn."""
    from txlab.data.cache import cache_folder
    from txlab.data.corpus import embedded
    from txlab.data.tokenizer import BPE

    lines = embedded(cache_folder(None)).file.read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line)["text"] for line in lines]
    made = BPE(BPE.Config())
    made.train(documents)
    raw: Any = made._library.encode_batch_fast
    for name, texts in (("documents", documents), ("one text", ["\n\n".join(documents)])):
        pieces = [piece for text in texts for piece in made.pieces(text)]
        shares = []
        for _ in range(9):
            times = []
            for job in (lambda p=pieces: raw(p, add_special_tokens=False),
                        lambda t=texts: made.encode_batch(t)):  # fmt: skip
                begin = time.process_time()
                job()
                times.append(time.process_time() - begin)
            shares.append(times[0] / times[1])
        print(f"{name}: {len(texts)} texts, {statistics.median(shares):.3f} of the raw rate")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--texts", default="lines,files,line,solid")
    parser.add_argument("--tokenizers", default="bpe")
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--library", action="store_true")
    parser.add_argument("--encode", action="store_true")
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.encode:
        encoding()
        return
    if chosen.child:
        name, *names = chosen.child
        files = [Path(file) for file in names]
        found = by_the_library(files, chosen.size) if chosen.library else learned(
            name, files, chosen.size)  # fmt: skip
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as folder:
        for kind in chosen.texts.split(","):
            files = make(Path(folder) / kind, kind, chosen.mb)
            for name in chosen.tokenizers.split(","):
                words = ["--size", str(chosen.size), *(["--library"] if chosen.library else [])]
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.vocabulary", *words, "--child", name,
                     *map(str, files)],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                found = {k: round(v) if isinstance(v, float) else v
                         for k, v in json.loads(done.stdout).items()}  # fmt: skip
                print(f"{chosen.mb} MB of {kind} ({len(files)} files), {name}: {found}", flush=True)


if __name__ == "__main__":
    main()
