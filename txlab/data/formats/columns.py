"""Columns of Parquet and Arrow files: a row is a document."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.formats.compression import unreadable
from txlab.data.formats.record import Record, checked

ROWS = 64
"""Rows held at once."""


class Row(Record):
    """A row's fields, or the values of one of them by `get`."""

    def __init__(self, where: str, batch: Any, index: int) -> None:
        self.where = where
        self._batch, self._index = batch, index

    def text(self, field: str) -> Iterator[str]:
        yield checked(self._value(field), field, self.where)

    def entry(self) -> dict[str, Any]:
        return {name: self._value(name) for name in self._batch.schema.names}

    def _value(self, name: str) -> Any:
        try:
            return self._batch.column(name)[self._index].as_py()
        except UnicodeDecodeError as error:
            raise RequestError(
                f"{self.where}, byte {error.start} of {name!r}: it is no UTF-8; expected text."
            ) from error


def records(file: Path, ending: str, field: str | None) -> Iterator[Row]:
    """Rows of a file; RequestError where it is damaged, or has no text under `field`."""
    import pyarrow

    number = 0
    try:
        for batch in _batches(file, ending, field):
            _check(batch)
            for index in range(batch.num_rows):
                number += 1
                yield Row(f"{file}, row {number}", batch, index)
    except OSError as error:
        if error.errno is not None:
            raise unreadable(file, error) from error
        raise _damaged(file, ending, error) from error
    except pyarrow.ArrowException as error:
        raise _damaged(file, ending, error) from error


def _batches(file: Path, ending: str, field: str | None) -> Iterator[Any]:
    """Record batches of at most `ROWS` rows, of the one column or of all."""
    import pyarrow

    with open(file, "rb") as probe:  # for the system's own error
        start = probe.read(6)
    if ending == ".parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(file, memory_map=True, pre_buffer=False) as source:
            columns = _columns(source.schema_arrow, field, file)
            yield from source.iter_batches(batch_size=ROWS, columns=columns)
        return
    with pyarrow.memory_map(str(file)) as mapped:
        if start == b"ARROW1":
            source = pyarrow.ipc.open_file(mapped)
            found = (source.get_batch(i) for i in range(source.num_record_batches))
        else:
            found = source = pyarrow.ipc.open_stream(mapped)
        columns = _columns(source.schema, field, file)
        for batch in found:
            for begin in range(0, batch.num_rows, ROWS):
                yield batch.select(columns).slice(begin, ROWS)


def _check(batch: Any) -> None:
    """ArrowInvalid where offsets point anywhere: the library would follow them."""
    import pyarrow

    try:
        batch.validate(full=True)
    except pyarrow.ArrowInvalid as error:
        if "UTF8" not in str(error):  # that is said of its own row
            raise


def _columns(schema: Any, field: str | None, file: Path) -> list[str]:
    """The names to read; RequestError where `field` is not one of them, or no text."""
    from pyarrow import types

    if field is None:
        return list(schema.names)
    if field not in schema.names:
        raise RequestError(
            f"{file}: no field {field!r} (data.field=NAME chooses); "
            f"there are: {', '.join(schema.names) or 'none'}."
        )
    kind = schema.field(field).type
    inner = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner)):
        raise RequestError(f"{file}: field {field!r} holds {kind}; expected strings.")
    return [field]


def _damaged(file: Path, ending: str, error: Exception) -> RequestError:
    reason = (str(error).splitlines() or ["no reason given"])[0]
    return RequestError(f"{file}: no whole {ending} file ({reason}); write or fetch it again.")
