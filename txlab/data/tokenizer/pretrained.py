"""A tokenizer that comes with somebody's model: a tokenizer.json, a Hugging Face directory."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from txlab.core.errors import RequestError
from txlab.data.tokenizer.cutting import Cutter
from txlab.data.tokenizer.library import LibraryTokenizer, read
from txlab.data.tokenizer.tokenizer import Tokenizer, tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

FILE = "tokenizer.json"
NAMES = tuple(f"{name}_token" for name in ("bos", "eos", "pad", "unk", "mask", "cls", "sep"))
"""Names under which Hugging Face directories and chat templates know special tokens."""
STAND_INS = {"bos_token": "cls_token", "eos_token": "sep_token"}
"""What begins and ends a document where nothing else does, as with BERT."""


@tokenizer("pretrained")
class Pretrained(LibraryTokenizer):
    """The tokenizer.json of a model, with its special tokens and its chat template.

    Beside the file are read, where they are there: tokenizer_config.json, special_tokens_map.json,
    chat_template.jinja, and the end tokens of generation_config.json. Documents begin with bos only
    where the tokenizer itself puts it there; [CLS] and [SEP] of BERT serve as bos and eos.

    Byte-level ones without a normaliser give back every text exactly, if they have all bytes: those
    that lack some, as SmolLM2's does, leave them out (`tokenize stats` counts them). Others decode
    as their own rules say, those of BERT in words joined by single spaces, in small letters where
    it makes them. In `decode_bytes`, where tokens stand by themselves, such a word has the space
    before it.
    """

    trainable = False

    @dataclass
    class Config(Tokenizer.Config):
        path: str | None = None
        """A tokenizer.json, or the directory of a model that holds one."""
        bos: str | None = None
        """Spelling of the token that begins documents; None: as the directory says."""
        eos: str | None = None
        """Spelling of the token that ends documents; None: as the directory says."""
        pad: str | None = None
        """Spelling of the token that fills rows; None: as the directory says, else that of eos."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config: Pretrained.Config = config

    def pieces(self, text: str) -> Iterator[str]:
        return Cutter(self._library).parts(text)

    @classmethod
    def load(cls, file: str | PathLike[str]) -> Self:
        return cls.from_path(cls.Config(path=str(file)))

    @classmethod
    def from_path(cls, config: Tokenizer.Config) -> Self:
        assert isinstance(config, Pretrained.Config)
        assert config.path is not None
        file = Path(config.path)
        file = file / FILE if file.is_dir() else file
        library, _, section = read(file)
        self = cls(config)
        self._use(library)
        about = section or _directory(file.parent, library)
        named = {"bos_token": config.bos, "eos_token": config.eos, "pad_token": config.pad}
        self._name({**about["special"], **{k: v for k, v in named.items() if v is not None}},
                   adds_bos=config.bos is not None or about["adds_bos"], ends=about["ends"],
                   file=file)  # fmt: skip
        self.template = about["template"]
        return self

    def _name(
        self, special: Mapping[str, str], *, adds_bos: bool, ends: Iterable[int], file: Path
    ) -> None:
        """Find the ids of the named special tokens; RequestError where one is not there."""
        ids = {}
        for name, spelling in special.items():
            found = self._library.token_to_id(spelling)
            if found is None:
                raise RequestError(
                    f"{file}: {name} {spelling!r} is no token of it; name one that is with "
                    f"tokenizer.{name.removesuffix('_token')}=TOKEN."
                )
            ids[name] = found
            # Named as special, though the file may list it as ordinary.
            self.control = {**self.control, spelling: found}
            self._table[found] = b""
        if "eos_token" not in ids:
            raise RequestError(
                f"{file}: nothing says which token ends a text; name it with tokenizer.eos=TOKEN."
            )
        self.special = {"pad_token": special["eos_token"], **special}
        self.eos_id = ids["eos_token"]
        self.pad_id = ids.get("pad_token", self.eos_id)
        self.adds_bos = adds_bos and "bos_token" in ids
        self.bos_id = ids["bos_token"] if self.adds_bos else None
        self.end_ids = tuple(dict.fromkeys([self.eos_id, *ends]))

    def _section(self) -> dict[str, Any]:
        return {
            "special": dict(self.special),
            "adds_bos": self.adds_bos,
            "ends": list(self.end_ids),
            "template": self.template,
        }


def _directory(folder: Path, library: "Library") -> dict[str, Any]:
    """What the files beside a tokenizer.json say, in the form of our section."""
    settings = {**_json(folder / "special_tokens_map.json"),
                **_json(folder / "tokenizer_config.json")}  # fmt: skip
    special = {}
    for name in NAMES:
        value = settings.get(name)
        value = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(value, str) and library.token_to_id(value) is not None:
            special[name] = value
    for name, other in STAND_INS.items():
        if name not in special and other in special:
            special[name] = special[other]
    bos = library.token_to_id(special.get("bos_token", ""))
    adds_bos = settings.get("add_bos_token")
    if adds_bos is None:
        adds_bos = bos is not None and library.encode("a").ids[:1] == [bos]
    ends = _json(folder / "generation_config.json").get("eos_token_id", [])
    ends = ends if isinstance(ends, list) else [ends]
    size = library.get_vocab_size(with_added_tokens=True)
    return {
        "special": special,
        "adds_bos": bool(adds_bos),
        "ends": [i for i in ends if isinstance(i, int) and 0 <= i < size],
        "template": _template(folder, settings.get("chat_template")),
    }


def _template(folder: Path, setting: Any) -> str | None:
    """The chat template: a file of its own, or a setting, which may hold several by name."""
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {folder / 'chat_template.jinja'}: {error}.") from error
    if isinstance(setting, list):
        by_name = {entry.get("name"): entry.get("template") for entry in setting}
        setting = by_name.get("default")
    return setting if isinstance(setting, str) else None


def _json(file: Path) -> dict[str, Any]:
    """The object in a file; empty where there is no file."""
    try:
        return dict(json.loads(file.read_bytes()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise RequestError(f"{file} cannot be read: {str(error).splitlines()[0]}.") from error
