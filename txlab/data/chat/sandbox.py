"""Chat templates as programs: somebody else's, so that they run in a sandbox."""

import functools
import json
from typing import TYPE_CHECKING, Any

from txlab.core.errors import RequestError

if TYPE_CHECKING:
    from jinja2 import Template as Compiled


@functools.lru_cache(maxsize=16)
def compiled(text: str) -> "Compiled":
    """The template as a program, with what chat templates expect to find; RequestError otherwise.

    The date is not among it: the same data must give the same tokens on every day.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, LoopControlExtension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks answers for another library; here it only holds its contents."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, Generation]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(text)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = f"line {line} of the chat template" if line else "the chat template"
        raise RequestError(f"{where} cannot be read: {str(error).splitlines()[0]}.") from error
