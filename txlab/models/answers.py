"""Items with a known answer, put to a model: greedy answers, marked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from txlab.data.problem import Problem
from txlab.data.tokenizer import Tokenizer
from txlab.models.model import Model
from txlab.models.sampling import Sampling
from txlab.models.text import generate_text

LONGEST = 128
"""New tokens an answer gets at most, however long the right one is."""
PLACES = 8192
"""Tokens of prompts and answers in one call: bounds its memory, whatever the number of items."""


@dataclass(frozen=True)
class Answered:
    """A problem with the answer that a model gave."""

    problem: Problem
    text: str
    ended: bool
    """Whether the model ended its answer by itself."""

    @property
    def right(self) -> bool:
        """Whether it is the right answer to the letter and ends there; outer space is left out."""
        return self.ended and self.text.strip() == self.problem.answer.strip()


def limit(problems: Sequence[Problem]) -> int:
    """New tokens that suffice for the right answer to each of `problems`."""
    return max(1, min(LONGEST, max((problem.length for problem in problems), default=1)))


def solve(
    model: Model,
    tokenizer: Tokenizer,
    problems: Sequence[Problem],
    *,
    end_ids: Sequence[int],
    max_new_tokens: int,
) -> list[Answered]:
    """The likeliest token again and again, for all problems at once; draws no random numbers."""
    sampling = Sampling(max_new_tokens=max_new_tokens, temperature=0.0)
    found: list[Answered] = []
    for part in _parts(problems, max_new_tokens):
        prompts = [problem.prompt_ids for problem in part]
        answers = generate_text(model, tokenizer, prompts, sampling, end_ids=end_ids)
        for problem, made in zip(part, answers, strict=True):
            found.append(Answered(problem, made.text, made.reason == "end token"))
    return found


def _parts(problems: Sequence[Problem], room: int) -> Iterator[Sequence[Problem]]:
    """Consecutive problems, as many as fit into `PLACES` when each is as wide as the widest."""
    begin, width = 0, 0
    for end, problem in enumerate(problems):
        wider = max(width, len(problem.prompt_ids) + room)
        if end > begin and (end + 1 - begin) * wider > PLACES:
            yield problems[begin:end]
            begin, wider = end, len(problem.prompt_ids) + room
        width = wider
    if problems:
        yield problems[begin:]
