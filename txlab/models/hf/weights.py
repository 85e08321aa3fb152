"""Their tensors under our names, and ours under theirs."""

import re
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.models.decoder import Decoder
from txlab.models.hf.mapping import Row, Table, pairs


class Weights(Mapping[str, Tensor]):
    """A model of theirs, complete, under our names; each tensor is a view made when asked for.

    `given`: their tensors. `shapes`: theirs, where known without reading them. RequestError lists
    what is missing, extra or of another shape than `config` says, by their names. A head that is
    tied may stand there as well, if it equals the embedding.
    """

    def __init__(
        self,
        given: Mapping[str, Tensor],
        config: Decoder.Config,
        table: Table,
        source: str,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        if shapes is None:
            shapes = {name: list(tensor.shape) for name, tensor in given.items()}
        self._given, self._names = given, _full_names(shapes, table)
        own = blank(config)
        self._places: dict[str, tuple[str, Row, int]] = {}
        wanted: dict[str, list[int]] = {}
        for theirs, ours, row in pairs(own, table):
            wanted[theirs] = list(row.join([own[name] for name in ours]).shape)
            self._places |= {name: (theirs, row, part) for part, name in enumerate(ours)}
        found = {
            name: list(shapes[there])
            for name, there in self._names.items()
            if not re.fullmatch(table.constants, name)
        }
        if table.head not in wanted and table.head in found:
            self._check_head(table, source)
            del found[table.head]
        problems = differences(wanted, found)
        if problems:
            raise RequestError(
                f"{source}: the weights do not fit the config: {'; '.join(problems)}."
            )

    def __getitem__(self, name: str) -> Tensor:
        theirs, row, part = self._places[name]
        return row.split(self._given[self._names[theirs]])[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def sources(self) -> list[str]:
        """Names of the tensors of theirs that are read."""
        return [self._names[name] for name in {theirs for theirs, _, _ in self._places.values()}]

    def _check_head(self, table: Table, source: str) -> None:
        embed = self._places["embed.weight"][0]
        head = self._given[self._names[table.head]]
        if embed in self._names and not torch.equal(self["embed.weight"], head):
            raise RequestError(
                f"{source}: {table.head} differs from {embed}, though the config ties them: say "
                '"tie_word_embeddings": false in config.json.'
            )


def theirs(own: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Our tensors as theirs; RequestError for one that no model of the family has."""
    return {
        name: row.join([own[part] for part in ours]).contiguous()
        for name, ours, row in pairs(own, table)
    }


def blank(config: Decoder.Config) -> dict[str, Tensor]:
    """The parameters of a decoder by name, without storage."""
    with torch.device("meta"):
        return dict(Decoder(config, config.dims()).named_parameters())


def differences(
    wanted: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]]
) -> list[str]:
    """A line for each way in which the shapes found are not the ones wanted."""
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted]
    shapes = [
        f"{name} {found[name]} (the config says {wanted[name]})"
        for name in wanted
        if name in found and found[name] != wanted[name]
    ]
    lists = {"missing": missing, "extra": extra, "wrong shape": shapes}
    return [f"{kind}: {', '.join(_few(names))}" for kind, names in lists.items() if names]


def _few(names: Sequence[str], most: int = 12) -> Sequence[str]:
    """The first names, and how many more there are."""
    rest = len(names) - most
    return [*names[:most], f"and {rest} more"] if rest > 0 else names


def _full_names(there: Mapping[str, object], table: Table) -> dict[str, str]:
    """The full name of each tensor, and the one that it has in the file."""
    bare = not any(name.startswith(table.prefix) for name in there)
    return {
        f"{table.prefix}{name}" if bare and name != table.head else name: name for name in there
    }
