"""WordPiece, trained and run by the `tokenizers` library."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txlab.core.errors import RequestError
from txlab.data.tokenizer.control import CONTROL, UNKNOWN
from txlab.data.tokenizer.learning import alphabet, learn, within
from txlab.data.tokenizer.tokenizer import tokenizer
from txlab.data.tokenizer.trained import Trained, specials

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

INSIDE = "##"
"""Before tokens that go on inside of a word."""


@tokenizer("wordpiece")
class WordPiece(Trained):
    """WordPiece (Schuster and Nakajima 2012, Devlin et al. 2019): the longest token that fits.

    Words end at white space, at punctuation and at Chinese characters. What is lost: how much white
    space there was and of which kind; case and accents with `lower`; and whole words that are
    longer than `max_word` or hold a character that is not in the alphabet: each becomes one
    <|unk|>, which stands for no text. The alphabet has every character of the training text as the
    beginning and as the inside of words, so that only its words above `max_word` are unknown.
    Bits per byte are those of what comes back, and so compare with no other tokenizer's.
    """

    @dataclass
    class Config(Trained.Config):
        min_frequency: int = 2
        """Times a pair must occur to be merged."""
        alphabet: int | None = None
        """The most characters to keep, frequent ones first; None: all that occur."""
        lower: bool = False
        """Whether text is made small and loses its accents before it is divided."""
        max_word: int = 100
        """Characters of a word above which it is unknown."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require((self.alphabet or 1) > 0, "alphabet", "a number above 0, or null")
            self.require(self.min_frequency > 0, "min_frequency", "a number above 0")
            self.require(self.max_word > 0, "max_word", "a number above 0")
            control = len(CONTROL) + 1 + len(self.control)
            self.require(
                self.vocab_size >= control + 2,
                "vocab_size",
                f"at least {control + 2}: {control} control tokens, a character in its two forms",
            )

    kind = "WordPiece"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config: WordPiece.Config = config

    def _may_not_know(self) -> bool:
        return True

    def _cut(self) -> Any:
        normalise, split = _normalizer(lower=self.config.lower).normalize_str, _words()
        return lambda unit: [word for word, _ in split.pre_tokenize_str(normalise(unit))]

    def _learn(self, counts: Mapping[str, int], letters: set[str]) -> "Library":
        from tokenizers import Tokenizer as Library
        from tokenizers import decoders, models, trainers

        config, control = self.config, self._spellings()
        counts = {word: n for word, n in counts.items() if len(word) <= config.max_word}
        if not counts:
            raise RequestError(
                f"there is no word of at most tokenizer.max_word={config.max_word} characters to "
                "learn from; raise it, or choose tokenizer=bpe or unigram for text without spaces."
            )
        also = {c for word in self._cut()(" ".join(sorted(letters))) for c in word}
        chosen = alphabet(counts, also, config.alphabet, (config.vocab_size - len(control)) // 2)
        counts = within(counts, {*chosen})
        # The library numbers the forms inside of words as it comes across them, in an order that
        # is another one each time; given like control tokens all are there, in this one.
        forms = [*sorted(chosen), *(INSIDE + letter for letter in sorted(chosen))]
        trainer = trainers.WordPieceTrainer(
            vocab_size=config.vocab_size,
            min_frequency=config.min_frequency,
            special_tokens=[*control, *forms],
            continuing_subword_prefix=INSIDE,
            show_progress=False,
        )
        vocabulary = learn(models.WordPiece(unk_token=UNKNOWN), trainer, counts)["vocab"]
        library = Library(
            models.WordPiece(
                vocab=vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=config.max_word
            )
        )
        library.add_special_tokens(specials(control))
        library.normalizer = _normalizer(lower=config.lower)
        library.pre_tokenizer = _words()
        library.decoder = decoders.WordPiece(prefix=INSIDE, cleanup=True)
        return library

    @classmethod
    def _fields(cls, parts: Mapping[str, Any]) -> dict[str, Any]:
        longest = parts["model"]["max_input_chars_per_word"]
        return {"lower": parts["normalizer"]["lowercase"], "max_word": longest}

    @classmethod
    def _foreign(cls, parts: Mapping[str, Any]) -> str | None:
        problem = super()._foreign(parts)
        if problem:
            return problem
        if parts["model"]["unk_token"] != UNKNOWN or UNKNOWN not in parts["model"]["vocab"]:
            return f"it has no {UNKNOWN}"
        if (parts.get("normalizer") or {}).get("type") != "BertNormalizer":
            return "it normalises text in another way"
        return None


def _normalizer(*, lower: bool) -> Any:
    """Puts spaces around Chinese characters; with `lower` also makes small and strips accents."""
    from tokenizers import normalizers

    return normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=lower, lowercase=lower
    )


def _words() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.BertPreTokenizer()
