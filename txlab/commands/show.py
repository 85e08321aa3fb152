"""Show one option, the composed run, its data or its learning rate.

python -m txlab show model.attn=gqa
python -m txlab show config +recipe=pretrain model.attn=mqa
python -m txlab show data|schedule +recipe=pretrain
"""

import dataclasses
import os

from txlab.core import docs, plugins
from txlab.core.errors import RequestError
from txlab.core.hydra import compose, prepare, registry, to_yaml
from txlab.core.slot import Slot, slot_at


def main(words: list[str]) -> None:
    """Print what the first word names; overrides may follow."""
    views = {"config": _config, "data": _data, "schedule": _schedule}
    first, rest = (words[0], words[1:]) if words else ("", [])
    if first in views:
        views[first](rest)
        return
    slot, equals, name = first.partition("=")
    if not equals:
        raise RequestError(
            f"show {first}: expected SLOT=NAME, such as model.attn=gqa, or {', '.join(views)}."
        )
    prepare([word for word in rest if word.startswith("plugins=")])
    registry.ready()
    _option(slot_at(slot.replace("/", ".")), name)


def _option(slot: Slot, name: str) -> None:
    option = slot.option(name)
    print(f"{slot.path}={name}: {docs.summary(option.cls)}")
    paper = docs.paper(option.cls)
    if paper:
        print(f"paper:  {paper}")
    file, _, line = option.origin.rpartition(":")
    nearby = os.path.relpath(file)
    print(f"origin: {file if nearby.startswith('..') else nearby}:{line}")
    print(f"from:   {plugins.provider(option.module)}")
    said = docs.field_docs(option.config)
    fields = [field for field in dataclasses.fields(option.config) if field.name != "name"]
    print("fields:" if fields else "fields: none")
    for field in fields:
        key = f"{slot.path}.{field.name}={docs.default_text(field)}"
        print(f"  {key}  ({docs.type_name(field.type)})")
        if said.get(field.name):
            print(f"      {said[field.name]}")


def _config(words: list[str]) -> None:
    print(to_yaml(compose(words)), end="")


def _data(words: list[str]) -> None:
    from txlab.data.source import data

    config = compose(words)
    source = data.build(
        config.data, config.tokenizer, context=config.model.context, seed=config.seed
    )
    source.prepare()
    for name, value in source.facts.items():
        print(f"{name}: {value}")
    for number, row in enumerate(source.preview()):
        print(f"row {number}: {row}")


def _schedule(words: list[str]) -> None:
    from txlab.train.schedule import schedule

    config = compose(words)
    total = config.train.steps
    if total is None:
        raise RequestError("show schedule needs train.steps=... : the length of the curve.")
    built = schedule.build(config.schedule, total_steps=total)
    marks = sorted({round(i * (total - 1) / 20) for i in range(21)})
    for update in marks:
        factor = built.factor(update)
        bar = "#" * round(50 * factor)
        print(f"{update:>8}  lr {config.optim.lr * factor:.3e}  {bar}")
