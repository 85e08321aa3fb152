"""What the tokenizers that txlab trains have in common: control tokens, pieces, training, files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

from txlab.core.errors import RequestError
from txlab.data.tokenizer.control import CONTROL, END, NAMED, SPECIAL, SPELLING, TEMPLATE, UNKNOWN
from txlab.data.tokenizer.library import LibraryTokenizer, checked, read
from txlab.data.tokenizer.tally import ROOM, Tally
from txlab.data.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Library

PIECE = (
    r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]{1,48}| ?\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}]{1,48}"
    r"|\s{1,48}(?!\S)|\s{1,48}"
)
"""Where merges stop. Bounded, so that text without any space costs no more than other text; letters
and punctuation are never in one piece, so no merge of ordinary text spells a control token."""
MOST = 1 << 24
"""Tokens at most: the library reserves memory for all of them first, and aborts without it."""
SPACES = " \n\t\r"
SPAN = 1 << 18
"""Characters handed to the library at once."""


class Trained(LibraryTokenizer):
    """A tokenizer whose first ids are control tokens, and whose others are learned from text."""

    @dataclass
    class Config(Tokenizer.Config):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(
                all(SPELLING.fullmatch(token) for token in self.control),
                "control",
                "spellings as <mask> or <|mask|>: letters, digits, _ and - between the marks",
            )
            taken = {*CONTROL, UNKNOWN}
            self.require(
                taken.isdisjoint(self.control), "control", f"others than {' '.join(sorted(taken))}"
            )
            self.require(self.vocab_size <= MOST, "vocab_size", f"at most {MOST}")

    bos_id, eos_id, pad_id = range(3)
    end_ids = (eos_id, CONTROL.index(END))
    kind: ClassVar[str] = "BPE"
    """What the library calls its model."""
    room: ClassVar[int] = ROOM
    """Bytes that different pieces may take in training."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.control = {spelling: i for i, spelling in enumerate(self._spellings())}
        self._name(self.control)
        self.template = TEMPLATE

    def train(self, texts: Iterable[str]) -> None:
        tally = Tally(self._cut(), room=self.room)
        for text in texts:
            for piece in self.pieces(checked(text)):
                tally.add(piece)
        counts: Counter[str] = Counter()
        for piece, n in tally.pieces():
            counts[piece] += n
        self.sampled = 1 << tally.level
        self._use(self._learn(counts, tally.letters))

    def _spellings(self) -> list[str]:
        """Control tokens in the order of their ids."""
        return [*CONTROL, *([UNKNOWN] if self._may_not_know() else []), *self.config.control]

    def _may_not_know(self) -> bool:
        """Whether the vocabulary has a token for what it cannot express."""
        return False

    def _cut(self) -> Any:
        """Divides a word into the pieces that no token reaches beyond."""
        cut = splitter().pre_tokenize_str
        return lambda unit: [unit[start:end] for _, (start, end) in cut(unit)]

    def _learn(self, counts: Mapping[str, int], letters: set[str]) -> "Library":
        """The library's tokenizer, learned from counted pieces; `letters`: of those left out."""
        raise NotImplementedError

    def pieces(self, text: str) -> Iterator[str]:
        """Cuts before white space that follows something else: merges stop there anyway."""
        start = 0
        while len(text) - start > SPAN:
            end = start + SPAN
            while end > start and not (text[end] in SPACES and not text[end - 1].isspace()):
                end -= 1
            # Without any such place the cut falls anywhere: still the same text, one merge apart.
            end = end if end > start else start + SPAN
            yield text[start:end]
            start = end
        yield text[start:]

    @classmethod
    def load(cls, file: str | PathLike[str]) -> Self:
        library, parts, section = read(file)
        name = cls.Config().name
        problem = cls._foreign(parts)
        if problem:
            raise RequestError(
                f"{file} is no tokenizer of option {name!r} ({problem}); train one by leaving "
                "tokenizer.path out, or take it as it is with tokenizer=pretrained."
            )
        added = [entry["content"] for entry in parts["added_tokens"]]
        more = [spelling for spelling in added if spelling not in (*CONTROL, UNKNOWN)]
        fields = {"vocab_size": library.get_vocab_size(), "path": str(file), "control": more}
        self = cls(cls.Config(**fields, **cls._fields(parts)))
        self.template = section.get("template", TEMPLATE)
        self.sampled = section.get("sampled", 1)
        self._use(library)
        return self

    @classmethod
    def _fields(cls, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the config that show in a tokenizer.json."""
        return {}

    @classmethod
    def _foreign(cls, parts: Mapping[str, Any]) -> str | None:
        """Why these parts of a tokenizer.json are not what this option writes; None if they are."""
        model = parts.get("model") or {}
        if model.get("type") != cls.kind:
            return f"its model is {model.get('type')}"
        added = [(token["id"], token["content"]) for token in parts.get("added_tokens", [])]
        spellings = [spelling for _, spelling in added]
        marked = all(token["special"] for token in parts.get("added_tokens", []))
        if added[: len(CONTROL)] != list(enumerate(CONTROL)):
            return f"its first tokens are not {' '.join(CONTROL)}"
        if added != list(enumerate(spellings)) or not all(map(SPELLING.fullmatch, spellings)):
            return "it has more than control tokens added"
        if not marked:
            return "its control tokens are not marked as special"
        vocabulary = model["vocab"]
        ids = range(len(vocabulary)) if isinstance(vocabulary, list) else vocabulary.values()
        if sorted(ids) != list(range(len(vocabulary))):
            return "its ids have gaps"
        return None

    def _use(self, library: "Library") -> None:
        super()._use(library)
        self._name(self.control)

    def _name(self, control: Mapping[str, int]) -> None:
        self.special = SPECIAL | {name: s for s, name in NAMED.items() if s in control}

    def _section(self) -> dict[str, Any]:
        found: dict[str, Any] = {} if self.template == TEMPLATE else {"template": self.template}
        return found if self.sampled == 1 else found | {"sampled": self.sampled}


def splitter() -> Any:
    """The library's pre-tokenizer that cuts text into pieces and keeps every character."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex(PIECE), "isolated")


def specials(spellings: Iterable[str]) -> "list[AddedToken]":
    """Control tokens as the library wants them."""
    from tokenizers import AddedToken

    return [AddedToken(spelling, special=True, normalized=False) for spelling in spellings]
