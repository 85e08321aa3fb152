"""Bytes of a file, whether it is compressed or not."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from txlab.core.errors import RequestError

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """The file as a stream of its uncompressed bytes.

    RequestError for what goes wrong in the block as well: no right to read it, damaged, cut short.
    """
    suffix = file.suffix.lower()
    try:
        with _stream(file, suffix) as stream:
            yield stream
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(file, suffix, error) from error
    except OSError as error:
        if error.errno is None:  # of a decompressor; those of the system have a number
            raise _damaged(file, suffix, error) from error
        raise unreadable(file, error) from error


def _stream(file: Path, suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.open(file)
    if suffix == ".bz2":
        return bz2.open(file)
    if suffix == ".xz":
        return lzma.open(file)
    if suffix == ".zst":
        return _zstandard(file)
    return open(file, "rb")


def _zstandard(file: Path) -> Any:
    import io

    import pyarrow

    class Raw(io.RawIOBase):
        """What `io` wants beneath a reader of lines; the library's own stream has none."""

        def __init__(self) -> None:
            with open(file, "rb"):  # for the system's own error
                pass
            self.inner = pyarrow.CompressedInputStream(pyarrow.OSFile(str(file)), "zstd")

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            found = self.inner.read(len(buffer))
            buffer[: len(found)] = found
            return len(found)

        def close(self) -> None:
            self.inner.close()
            super().close()

    return io.BufferedReader(Raw(), 1 << 18)


def unreadable(file: Path, error: OSError) -> RequestError:
    """The refusal of a file that the system does not hand out."""
    return RequestError(
        f"cannot read {file}: {error.strerror or error}; check the path and its rights."
    )


def _damaged(file: Path, suffix: str, error: Exception) -> RequestError:
    reason = (str(error).splitlines() or ["no reason given"])[0]
    return RequestError(
        f"{file}: the {suffix} data is damaged or cut short ({reason}); fetch the file again."
    )
