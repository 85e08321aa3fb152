"""A run from its config to its summary: every part built by its slot, in order, then trained."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlab.loading import build, load, sized

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from txlab.data.source import Data
    from txlab.models import Model
    from txlab.objectives import Objective
    from txlab.schema import Config
    from txlab.train.callbacks import Samples
    from txlab.train.checkpoint import Checkpoint
    from txlab.train.config import Train
    from txlab.train.datamodule import DataModule
    from txlab.train.folder import Place
    from txlab.train.module import TrainModule
    from txlab.train.origin import Origin

__all__ = ["build", "load", "train"]


def train(config: "Config", name: str | None = None) -> dict[str, Any]:
    """Train, and return the run's summary; `name` names a run folder that is made here.

    Several devices get a process each, unless a launcher (torchrun, SLURM) has started them. Raises
    RequestError where the config cannot be run, RunError where the run fails.
    """
    from txlab.train import curves, devices, folder, ranks, requeue, resume
    from txlab.train.quiet import quiet

    name = name or config.model.name
    if config.logger:
        from txlab.train.trainer import check_loggers  # Lightning's import takes a while

        check_loggers(config.logger)
    if not ranks.started() and (world := devices.wanted(config.trainer)) > 1:
        devices.check_shares(config, world)
        return train_on_ranks(config, name, world)
    from txlab.train.trainer import fit

    config = same_on_all_ranks(config)
    with requeue.stoppable(), quiet(), folder.opened(config.run_dir, config.resume, name) as place:
        with ranks.one_by_one():
            data = prepare_data(config, place.resumed)
        goal = build_objective(config, data)
        config = sized(config, data.tokenizer)
        model, origin = starting_model(config, goal, place.resumed)
        module = training_module(config, model, goal, data, total_steps(config, data))
        if place.resumed is not None:
            resume.check_config(place.resumed, saved_text(config))
            resume.restore(place.resumed, module, data.facts)
        trainer = build_trainer(config, place, module, data, origin)
        begin(config, place, trainer, module, data)
        if module.counters.step < last_step(config, module):
            fit(trainer, module, data_module(config, module, data))
        elif trainer.is_global_zero:
            curves.pictures(place.path, module, data.facts)
        return conclude(place, module, data) if trainer.is_global_zero else {}


def train_on_ranks(config: "Config", name: str, world: int) -> dict[str, Any]:
    """`train` in `world` processes of their own, in one run folder."""
    from txlab.core.hydra import to_yaml
    from txlab.core.slot import SLOTS
    from txlab.train import folder, launch

    options = [option for slot in SLOTS.values() for option in slot.options.values()]
    modules = dict.fromkeys(o.module for o in options if not o.module.startswith("txlab."))
    with folder.opened(config.run_dir, config.resume, name) as place:
        here = dataclasses.replace(config, run_dir=str(place.path))
        return launch.run(to_yaml(here), [*config.plugins, *modules], world)


def same_on_all_ranks(config: "Config") -> "Config":
    """Rank 0's config, on every rank: each has composed it by itself, maybe in another second."""
    from txlab.core.hydra import from_yaml, to_yaml
    from txlab.train import ranks

    if not (ranks.started() and ranks.can_meet()):
        return config
    text = ranks.told(lambda: to_yaml(config), "a config")
    return from_yaml(text, "the config of rank 0", ours=True)


def prepare_data(config: "Config", resumed: "Checkpoint | None" = None) -> "Data":
    """Tokenised data, in the tokens of the model that is resumed or started from, if any."""
    from txlab.data.source import data
    from txlab.loading import folder_of, saved_config, saved_tokenizer

    tokenizer: Any = config.tokenizer
    source = None if resumed is None else resumed.path
    if source is None and config.model.init_from is not None:
        source = folder_of(Path(config.model.init_from))
    if source is not None:
        tokenizer = saved_tokenizer(source, saved_config(source)) or tokenizer
    made = data.build(config.data, tokenizer, context=config.model.context, seed=config.seed)
    made.prepare()
    return made


def build_objective(config: "Config", data: "Data") -> "Objective":
    """What is trained for; RequestError where the rows of the data are not what it reads."""
    from txlab.objectives import objective
    from txlab.objectives.fitting import check_fits

    goal = objective.build(config.objective)
    check_fits(goal, data, config.objective.name)
    return goal


def starting_model(
    config: "Config", goal: "Objective", resumed: "Checkpoint | None"
) -> tuple["Model", "Origin | None"]:
    """The model as the run starts, and where its weights are found again, if they are needed.

    They are by an adapter, which is saved without them, and by an objective that compares with
    them; a resumed run takes those of its first time, or is refused.
    """
    from txlab.loading import Source, start_of

    keeps = goal.needs_start or config.adapter.name != "none"
    if resumed is not None and not keeps:
        return build(config, weights=False), None
    source = start_of(resumed.path) if resumed is not None else None
    if resumed is None and config.model.init_from is not None:
        source = Source(Path(config.model.init_from))
    model = build(config, weights=False)
    if source is not None:
        source.fill(model)
    goal.bind(model)
    return model, source.origin() if source is not None and keeps else None


def total_steps(config: "Config", data: "Data") -> int:
    """Steps of the whole run, from `train.steps`, `.tokens` or `.epochs`; one epoch by default."""
    train: Train = config.train
    size = data.step_rows
    if train.steps is not None:
        return train.steps
    if train.tokens is not None:
        return math.ceil(train.tokens / (float(size) * data.row_tokens))
    return math.ceil((train.epochs or 1) * len(data.train) / size)


def last_step(config: "Config", module: "TrainModule") -> int:
    """Where this process ends: with the run, or at `train.stop_at`."""
    return min(module.total_steps, config.train.stop_at or module.total_steps)


def training_module(
    config: "Config", model: "Model", goal: "Objective", data: "Data", steps: int
) -> "TrainModule":
    """The Lightning module with objective, optimizer and schedule."""
    from txlab.models.flops import train_flops
    from txlab.objectives import Frozen
    from txlab.train.module import TrainModule
    from txlab.train.optim import optim
    from txlab.train.recompute import prepare_blocks
    from txlab.train.schedule import schedule

    settings = config.train
    prepare_blocks(model, how=settings.activation_checkpointing, compiled=settings.compile)
    for part in goal.modules():  # frozen ones keep nothing, so nothing is to be recomputed
        if isinstance(part, Frozen):
            prepare_blocks(part.network, how="none", compiled=settings.compile)
    return TrainModule(
        model,
        goal,
        make_optimizer=optim.build(config.optim).make,
        schedule=schedule.build(
            config.schedule.in_updates(float(data.step_rows) * data.row_tokens), total_steps=steps
        ),
        train=config.train,
        total_steps=steps,
        seed=config.seed,
        token_bytes=data.tokenizer.token_bytes(),
        validates=len(data.val) > 0,
        val_sources=list(data.val_loaders()),
        flops_per_token=train_flops(model, round(data.sequence)),
    )


def saved_text(config: "Config") -> str:
    """The config as it stands in `RUN/config.yaml` and in every checkpoint."""
    from txlab.core.hydra import to_yaml

    return to_yaml(dataclasses.replace(config, run_dir=None, resume=None))


def build_trainer(
    config: "Config",
    place: "Place",
    module: "TrainModule",
    data: "Data",
    origin: "Origin | None" = None,
) -> "Trainer":
    """Lightning's Trainer with our callbacks and other people's; writes nothing yet."""
    from txlab.train import figures
    from txlab.train.callbacks import Checkpoints, ExactMatch, Log, Progress, Tracking, Untouched
    from txlab.train.checkpoint import Keep
    from txlab.train.strategy.checks import check_strategy
    from txlab.train.strategy.peers import shares
    from txlab.train.throughput import peak_flops
    from txlab.train.trainer import check_plan, make_callbacks, make_trainer

    step, settings = module.counters.step, config.train
    callbacks: list[Any] = [Log(place.path, resumed_step=step), Progress(), Untouched()]
    if settings.sample is not None:
        callbacks.append(sampler(config, place, data, step))
    answers = ExactMatch(place.path, data, resumed_step=step)
    if module.validates and answers.problems:
        callbacks.append(answers)
    callbacks += make_callbacks(config.callbacks, place.path)
    checkpoints = Checkpoints(
        place.path,
        config=saved_text(config),
        tokenizer=data.tokenizer,
        facts=data.facts,
        save_every=settings.save_every,
        keep=Keep(settings.keep_last, settings.keep_best, settings.keep_every),
        best=settings.best,
        highest=settings.best_mode == "max",
        resumed_step=-1 if place.resumed is None else step,
        origin=None if origin is None else origin.text(),
    )
    tracking = Tracking(place.path, checkpoints, facts=data.facts, resumed_step=step)
    trainer = make_trainer(config.trainer, settings, [*callbacks, checkpoints, tracking])
    check_strategy(trainer, module)
    data.config.check_ranks(shares(trainer))
    every: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    check_plan(every, module, last_step(config, module) - step)
    figures.refuse_unknown(figures.asked_for(config, every), module, every, data.val_loaders())
    peak = peak_flops(trainer.strategy.root_device, settings.precision)
    module.peak_flops = peak * trainer.world_size
    return trainer


def sampler(config: "Config", place: "Place", data: "Data", step: int) -> "Samples":
    """Generates from `train.sample` at every validation."""
    from txlab.models.sampling import Sampling
    from txlab.train.callbacks import Samples

    length = min(120, max(config.model.context // 2, 1))
    sampling = Sampling(max_new_tokens=length, temperature=0.7, top_p=0.9, seed=config.seed)
    prompt = config.train.sample or ""
    return Samples(place.path, data.tokenizer, prompt, sampling, resumed_step=step)


def begin(
    config: "Config", place: "Place", trainer: "Trainer", module: "TrainModule", data: "Data"
) -> None:
    """Nothing can be refused any more: say what is about to happen, and write the first files."""
    import yaml

    from txlab.train.devices import described
    from txlab.train.folder import write_first
    from txlab.train.report import introduction, remarks
    from txlab.train.trainer import make_loggers

    if not trainer.is_global_zero:
        return
    where, notes = described(trainer, config.train.precision), [*data.notes, *remarks(module)]
    for line in introduction(place, module, data, where, notes):
        print(line, flush=True)
    write_first(place, saved_text(config))
    trainer.loggers = make_loggers(config.logger, place.path, print, module.counters.step)
    for logger in trainer.loggers:
        logger.log_hyperparams(yaml.safe_load(saved_text(config)))


def data_module(config: "Config", module: "TrainModule", data: "Data") -> "DataModule":
    """The loaders, from the step that the run stands at."""
    from txlab.train.datamodule import DataModule

    start, total = module.counters.step, last_step(config, module)
    return DataModule(data, start=start, total_steps=total, one_batch=config.train.one_batch)


def conclude(place: "Place", module: "TrainModule", data: "Data") -> dict[str, Any]:
    """Write and show summary and sample of a finished run."""
    from txlab.train import report
    from txlab.train.callbacks import exact_match
    from txlab.train.callbacks.samples import FILE, read_samples

    summary = report.summarise(place.path, module, data.facts)
    report.write_summary(place.path, summary)
    samples = place.path / FILE
    if samples.exists() and (texts := read_samples(samples)):
        print(f"\nsample at step {texts[-1][0]}:\n{texts[-1][1]}\n")
    if (answers := place.path / exact_match.FILE).exists():
        for line in exact_match.closing(answers):
            print(line)
    report.table(summary)
    return summary
