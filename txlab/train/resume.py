"""Going on from a checkpoint: what may differ from the first time, and putting everything back."""

from typing import Any

import yaml

from txlab.core.errors import RequestError
from txlab.core.hydra import from_yaml, to_yaml
from txlab.nn.adapter import adapter_of
from txlab.train import checkpoint
from txlab.train.checkpoint import Checkpoint
from txlab.train.module import TrainModule
from txlab.train.weights import load_adapter, load_tensors

FREE = frozenset(
    {
        *("run_dir", "resume", "ckpt", "plugins", "sweep", "trainer", "logger", "callbacks"),
        "_plugins_",
    }
)
FREE_LEAVES = frozenset(
    {
        *("train.steps", "train.tokens", "train.epochs", "train.val_every", "train.val_batches"),
        *(
            "train.save_every",
            "train.stop_at",
            "train.keep_last",
            "train.keep_best",
            "train.keep_every",
            "train.best",
            "train.best_mode",
            "train.log_every",
            "train.pictures",
            "train.max_skipped",
            "train.sample",
            "train.compile",
            "train.activation_checkpointing",
        ),
        *(
            "data.micro_batch_size",
            "data.micro_batch_tokens",
            "data.cache_dir",
            "data.n_asked",
            "model.init_from",
        ),
    }
)
"""Keys that may change on resume: length, intervals, places. All others decide the result."""


def check_config(found: Checkpoint, config: str) -> None:
    """RequestError that lists every key in which the checkpoint's config differs."""
    then, now = _flat(_parsed(found, _completed(found.config()))), _flat(_parsed(found, config))
    keys = sorted(then.keys() | now.keys())
    changed = [key for key in keys if then.get(key) != now.get(key) and not _free(key)]
    if changed:
        said = ", ".join(f"{key} was {then.get(key)}, is {now.get(key)}" for key in changed)
        raise RequestError(
            f"resume={found.path}: this is another run ({said}); give the same settings as then, "
            f"or start a new run from its weights with model.init_from={found.path}."
        )


IDENTITY = ("sha256", "tokenizer", "train_tokens", "val_tokens")
"""Facts about the data that must be those of the first time."""


def restore(found: Checkpoint, module: TrainModule, facts: dict[str, Any] | None = None) -> None:
    """Weights, optimizer, counters, log window and generators of a checkpoint."""
    if found.has(checkpoint.WEIGHTS) or not found.has(checkpoint.ADAPTER):
        load_tensors(module.model, found.weights(), str(found.path / checkpoint.WEIGHTS))
    if adapter_of(module.model) is not None:
        load_adapter(module.model, found.adapter(), str(found.path / checkpoint.ADAPTER))
    state = found.state()
    try:
        then = state["data"]
        changed = [key for key, value in (facts or {}).items() if then.get(key, value) != value]
        if changed:
            raise RequestError(
                f"resume={found.path}: the data is not what it was ({', '.join(changed)} differ): "
                "bring the text back, or start anew with model.init_from."
            )
        module.load_state(state, str(found.path / "state.pt"))
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise RequestError(
            f"{found.path / 'state.pt'} is not a state of this version of txlab ({error})."
        ) from error
    step, wanted = module.counters.step, module.total_steps
    if step > wanted:
        raise RequestError(
            f"resume={found.path} stands at step {step}, but the run is to end at step {wanted}: "
            "give a larger train.steps, tokens or epochs, or start anew with model.init_from."
        )


def _completed(text: str) -> str:
    """A saved config with the defaults of the keys that it is older than."""
    try:
        return to_yaml(from_yaml(text))
    except RequestError:  # of an option that is not here: it is another one than now
        return text


def _parsed(found: Checkpoint, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RequestError(
            f"{found.path / 'config.yaml'} is no YAML: it is damaged or not ours."
        ) from error


def _flat(tree: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {path: tree}
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{path}.{key}".lstrip("."))
    return found


def _free(key: str) -> bool:
    return key.partition(".")[0] in FREE or key in FREE_LEAVES
