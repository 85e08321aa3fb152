"""Show one option, the composed run, its data, its learning rate, how its tensors start and grow.

python -m txlab show model.attn=gqa
python -m txlab show config +recipe=pretrain model.attn=mqa
python -m txlab show data|schedule|init +recipe=pretrain
python -m txlab show schedule schedule=wsd train.steps=1000 out=lr.png
python -m txlab show coordinates model.init=mup optim.scale=mup widths=64,128,256 out=mup.png
"""

import dataclasses
import os
import re
from pathlib import Path

from txlab.core import docs, plugins
from txlab.core.arguments import parse
from txlab.core.errors import RequestError
from txlab.core.hydra import compose, prepare, registry, to_yaml
from txlab.core.slot import Slot, slot_at


def main(words: list[str]) -> None:
    """Print what the first word names; overrides may follow."""
    views = {"config": _config, "data": _data, "schedule": _schedule, "init": _init}
    views["coordinates"] = _coordinates
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
    from txlab.commands.samples import show
    from txlab.loading import inherited
    from txlab.run import prepare_data

    config, _ = inherited(compose(words), words)
    show(prepare_data(config))


def _schedule(words: list[str]) -> None:
    from txlab.train.schedule import schedule

    outs = [word.removeprefix("out=") for word in words if word.startswith("out=")]
    words = [word for word in words if not word.startswith("out=")]
    target = _picture(outs[-1]) if outs else None
    config = compose(words)
    total = config.train.steps
    if total is None:
        raise RequestError("show schedule needs train.steps=... : the length of the curve.")
    curve = config.schedule
    if curve.warmup_tokens is not None:
        from txlab.loading import inherited
        from txlab.run import prepare_data

        data = prepare_data(inherited(config, words)[0])
        curve = curve.in_updates(float(data.step_rows) * data.row_tokens)
    built = schedule.build(curve, total_steps=total)
    factors = {update: built.factor(update) for update in _updates(total, built.warmup)}
    peak = max(factors, key=lambda update: factors[update])
    marks = sorted({round(i * (total - 1) / 20) for i in range(21)} | {peak})
    for update in marks:
        share = factors[update] / factors[peak] if factors[peak] else 0.0
        print(f"{update:>8}  lr {config.optim.lr * factors[update]:.3e}  {'#' * round(50 * share)}")
    if target is not None:
        rates = {update: config.optim.lr * factor for update, factor in factors.items()}
        _draw(target, config.schedule.name, rates)


def _updates(total: int, warmup: int) -> list[int]:
    """All of a curve of up to 10,000 updates; of a longer one as many, with those of the marks."""
    if total <= 10_000:
        return list(range(total))
    spread = {round(i * (total - 1) / 10_000) for i in range(10_001)}
    return sorted(spread | {min(max(warmup + k, 0), total - 1) for k in (-1, 0)})


def _picture(out: str) -> Path:
    target = Path(out)
    if target.suffix != ".png" or target.exists():
        raise RequestError(f"out={target}: name a .png file that does not exist yet.")
    if not target.parent.is_dir():
        raise RequestError(f"out={target}: there is no folder {target.parent}; make it first.")
    return target


def _coordinates(words: list[str]) -> None:
    from txlab.train import coordinates

    arguments, overrides = parse(coordinates.Arguments, words, rest=True)
    target = None if arguments.out is None else _picture(arguments.out)
    widths, panels = arguments.sizes(), {}
    for title, config in coordinates.compared(compose(overrides)).items():
        panels[title] = coordinates.coordinates(
            config, widths, steps=arguments.steps, seeds=arguments.seeds
        )
        print(f"{title}: mean |activation| after {arguments.steps} updates at the peak rate")
        print("\n".join(coordinates.table(widths, panels[title])), flush=True)
    if target is not None:
        coordinates.draw(target, widths, panels)
        print(f"picture: {target}")


def _draw(target: Path, name: str, rates: dict[int, float]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(list(rates), list(rates.values()))
    axes.set(xlabel="update", ylabel="learning rate", title=f"schedule={name}", ylim=(0, None))
    axes.grid(alpha=0.3)
    try:
        figure.savefig(target, dpi=120)
    except OSError as error:
        raise RequestError(f"out={target} cannot be written: {error.strerror}.") from error
    print(f"picture: {target}")


def _init(words: list[str]) -> None:
    import torch

    import txlab
    from txlab.nn.adapter import NoAdapter
    from txlab.nn.init import init

    config = compose(words)
    bare = dataclasses.replace(config.model, init_from=None)
    with torch.device("meta"):
        model = txlab.build(dataclasses.replace(config, adapter=NoAdapter.Config(), model=bare))
    start = init.build(model.config.init, model.dims)
    shapes = {name: list(tensor.shape) for name, tensor in model.named_parameters()}
    rows: dict[tuple[str, str, str], list[int]] = {}
    for name, said in start.table(model):
        layer = re.search(r"layers\.(\d+)\.", name)
        kind = name if layer is None else name.replace(layer[0], "layers.{}.", 1)
        number = [] if layer is None else [int(layer[1])]
        rows.setdefault((kind, str(shapes[name]), said), []).extend(number)
    for (kind, shape, said), layers in rows.items():
        print(f"{kind.format(_span(layers)):<40} {shape:<16} {said}")
    if start.logit_scale != 1:
        print(f"the last states are multiplied by {start.logit_scale:.4g} before the head")


def _span(numbers: list[int]) -> str:
    """0-3 for 0, 1, 2, 3; 0,2 for 0 and 2."""
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))
