"""Weights in a Hugging Face directory: safetensors files, mapped into memory, read one by one."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from txlab.core.errors import RequestError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
FLOATS = ("F64", "F32", "F16", "BF16")


class Tensors(Mapping[str, Tensor]):
    """The tensors of a directory by name; each is read when it is asked for, and not kept.

    RequestError where there are no safetensors, or a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shapes: dict[str, list[int]] = {}
        self._files: dict[str, Any] = {}
        for name, wanted in files(folder).items():
            self._add(folder / name, wanted)

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def require_floats(self, names: Iterable[str]) -> None:
        """RequestError where one of these tensors is quantised."""
        for name in names:
            kind = self._files[name].get_slice(name).get_dtype()
            if kind not in FLOATS:
                raise RequestError(
                    f"{self.folder}: {name} is stored as {kind}; quantised weights are not read, "
                    "take the model in float32, float16 or bfloat16."
                )

    def _add(self, file: Path, wanted: set[str] | None) -> None:
        try:
            opened = safe_open(file, framework="pt")
            parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            shapes = {name: list(part.get_shape()) for name, part in parts.items()}
        except FileNotFoundError:
            raise RequestError(
                f"{file} is missing, but {INDEX} names it: download all files of the model."
            ) from None
        except (SafetensorError, OSError) as error:
            why = " ".join(str(error).split())[:120]
            raise RequestError(f"{file} cannot be read ({why}): download it again.") from error
        if wanted is not None and set(parts) != wanted:
            apart = ", ".join(sorted(set(parts) ^ wanted))
            raise RequestError(f"{file} and {INDEX} do not agree about {apart}.")
        self.shapes |= shapes
        self._files |= dict.fromkeys(parts, opened)


def files(folder: Path) -> dict[str, set[str] | None]:
    """Names of the weight files of a directory, each with the tensors that its index says it has.

    RequestError where there are none, with the way out of pickled ones: those are never opened,
    since reading a pickle can run whatever its author wants.
    """
    index = folder / INDEX
    if (folder / WEIGHTS).is_file():
        return {WEIGHTS: None}
    if not index.is_file():
        pickled = sorted(f.name for pattern in PICKLES for f in folder.glob(pattern))
        if pickled:
            raise RequestError(
                f"{folder} has its weights as a pickle only ({pickled[0]}), which can run code "
                "when it is read: take the model's safetensors, or, where you trust the file, make "
                "them with transformers: from_pretrained, then save_pretrained."
            )
        raise RequestError(f"{folder} has neither {WEIGHTS} nor {INDEX}: there are no weights.")
    try:
        places = dict(json.loads(index.read_bytes())["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{index} cannot be read: it has no weight_map.") from error
    found: dict[str, set[str]] = {}
    for name, file in places.items():
        if not isinstance(file, str) or not re.fullmatch(r"[\w.-]+\.safetensors", file):
            raise RequestError(f"{index}: {file!r} is no name of a safetensors file beside it.")
        found.setdefault(file, set()).add(name)
    return dict(found)
