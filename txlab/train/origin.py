"""Where a run's model started from: by place and by content, so that another one is refused."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.train.checkpoint import ORIGIN, Checkpoint


@dataclass(frozen=True)
class Origin:
    """The weights that are needed again to load an adapter or to rebuild a reference."""

    path: str
    """Where they were: a checkpoint, or the folder of a foreign model."""
    sha256: str
    """Of their tensors."""

    def text(self) -> str:
        """What stands in a checkpoint's `origin.json`."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def verify(self, sha256: str, asked: Path) -> None:
        """RequestError where the weights at the place are not those of then."""
        if sha256 != self.sha256:
            raise RequestError(
                f"{asked / ORIGIN}: the weights at {self.path} are not those that it was trained "
                "from: bring these back, or write their place into that file."
            )


def read_origin(checkpoint: Checkpoint) -> Origin | None:
    """The origin that a checkpoint names, None where it stands for itself.

    A relative `path` in the file is read from the checkpoint's folder. RequestError where nothing
    is at the place.
    """
    file = checkpoint.path / ORIGIN
    if not file.exists():
        return None
    try:
        origin = Origin(**json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise RequestError(
            f"{file} cannot be read ({error}): it is damaged or not ours."
        ) from error
    place = Path(os.path.normpath(checkpoint.path / origin.path))
    if not place.is_dir():
        raise RequestError(
            f"{file}: the weights that this checkpoint builds on are no longer at {place}: put "
            "them back, or write their new place into that file."
        )
    return Origin(str(place), origin.sha256)


def fingerprint(tensors: Mapping[str, Tensor], on: str = "") -> str:
    """SHA-256 of names, shapes, dtypes and bits; `on` is the fingerprint of what they build on."""
    found = hashlib.sha256(on.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
