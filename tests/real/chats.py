"""Short chats and pairs of answers made from a seed: something small to fine-tune on."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

PLACES = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Peru": "Lima"}
THINGS = {"snow": "white", "grass": "green", "coal": "black", "blood": "red", "a lemon": "yellow"}


def pairs(n: int, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """(question, right answer, wrong answer), `n` times."""
    draw = random.Random(seed)
    for number in range(n):
        a, b = draw.randint(10, 99), draw.randint(10, 99)
        place, thing = draw.choice(list(PLACES)), draw.choice(list(THINGS))
        kind = number % 4
        if kind == 0:
            yield f"What is {a} plus {b}?", f"It is {a + b}.", f"I think that it is {a + b + 10}."
        elif kind == 1:
            known = f"The capital of {place} is {PLACES[place]}"
            yield (
                f"Name the capital of {place} and say {a}.",
                f"{known}, and the number is {a}.",
                f"{known}, I will not say numbers.",
            )
        elif kind == 2:
            wrong = draw.choice([colour for key, colour in THINGS.items() if key != thing])
            yield (
                f"Which colour has {thing}? Answer in {a} letters or fewer.",
                f"{THINGS[thing].capitalize()}.",
                f"It has the colour {wrong}.",
            )
        else:
            yield (
                f"Is {a} larger than {b}?",
                f"{'Yes' if a > b else 'No'}, {a} is {'' if a > b else 'not '}larger than {b}.",
                f"{'No' if a > b else 'Yes'}, of course.",
            )


def write(folder: Path, n: int, seed: int = 0) -> tuple[Path, Path]:
    """Write chats.jsonl and pairs.jsonl into `folder`, and return their paths."""
    chats, preferences = folder / "chats.jsonl", folder / "pairs.jsonl"
    with chats.open("w") as one, preferences.open("w") as two:
        for question, right, wrong in pairs(n, seed):
            talk = [{"role": "user", "content": question}, {"role": "assistant", "content": right}]
            one.write(json.dumps({"messages": talk}) + "\n")
            pair = {"prompt": question, "chosen": right, "rejected": wrong}
            two.write(json.dumps(pair) + "\n")
    return chats, preferences
