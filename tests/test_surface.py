"""The public names of the README: keys, verbs, exit statuses, Python. Removing one breaks users."""

import inspect
from pathlib import Path

import pytest

import txlab
from txlab.__main__ import verbs
from txlab.core.errors import RequestError, RunError
from txlab.core.hydra.keys import every_key
from txlab.core.hydra.registry import RECIPES, ready
from txlab.core.slot import SLOTS

ready()
OPTIONS = {
    "model": ["decoder"],
    "model.attn": [
        "mha",
        "mqa",
        "gqa",
        "linear",
        "mla",
        "differential",
        "swa",
        "flash",
        "longformer",
        "bigbird",
    ],
    "model.backend": ["auto", "math", "sdpa", "banded", "flash", "flex"],
    "model.pos": ["none", "sinusoidal", "learned", "rope", "alibi", "t5"],
    "model.norm": ["layernorm", "rmsnorm", "dyt", "none"],
    "model.residual": ["pre", "post", "parallel", "sandwich", "deepnorm"],
    "model.ffn": ["mlp", "swiglu", "geglu", "reglu", "moe"],
    "model.init": ["gpt2", "llama", "xavier", "deepnorm", "mup", "small"],
    "adapter": ["none", "lora"],
    "tokenizer": ["bpe", "byte", "pretrained", "unigram", "wordpiece"],
    "data": [
        *("text", "chat", "pairs", "prompts", "mlm", "span_corruption", "prefix_lm", "fim"),
        *("copy", "selective_copy", "induction", "mqar", "needle", "parity", "modular_addition"),
        *("images", "captions"),
    ],
    "objective": ["next_token", "dpo", "ipo"],
    "optim": ["adamw", "sgd", "muon", "lion", "adafactor", "schedule_free", "adamw_8bit"],
    "schedule": ["cosine", "linear", "constant", "wsd", "inverse_sqrt", "one_cycle"],
}
KEYS = {
    "": "seed run_dir resume ckpt plugins trainer logger callbacks",
    "model": "dim n_layers n_heads head_dim context vocab_size tie_embeddings dropout init_from",
    "model.pattern": "attn ffn pos",
    "model.attn": "n_kv_heads window sinks softcap qk_norm gate sink_logit n_globals block "
    "n_random",
    "model.pos": "theta partial scaling factor original_context",
    "model.ffn": "hidden activation n_experts top_k",
    "model.norm": "eps",
    "model.residual": "layer_scale drop_path",
    "data": "path field batch_size micro_batch_size val_fraction",
    "tokenizer": "vocab_size path",
    "train": "steps stop_at tokens epochs val_every save_every log_every clip compile precision "
    "keep_last keep_best keep_every best best_mode pictures "
    "max_skipped ema ema_every ema_warmup",
    "optim": "lr weight_decay betas role_lr layer_decay scale momentum adjust adamw_lr",
    "optim.role_lr": "embed position head norm attn ffn router adapter other",
    "sweep": "metric goal",
    "schedule": "warmup warmup_tokens",
    "objective": "label_smoothing beta",
    "adapter": "r alpha dropout targets",
}


def test_slots_and_options():
    for path, names in OPTIONS.items():
        assert set(names) <= set(SLOTS[path].options), path


@pytest.mark.parametrize("parent", KEYS)
def test_keys(parent: str):
    wanted = {f"{parent}.{leaf}".lstrip(".") for leaf in KEYS[parent].split()}
    assert wanted <= set(every_key())


def test_recipes_and_verbs():
    assert {"pretrain", "sft", "dpo"} <= set(RECIPES)
    known = (
        "list",
        "show",
        "check",
        "cost",
        "new",
        "generate",
        "evaluate",
        "merge",
        "tokenize",
        "equal",
    )
    assert {*known, "sweep", "agent"} <= set(verbs())


def test_exit_statuses():
    assert (RequestError.exit_status, RunError.exit_status) == (2, 1)


def test_python_names():
    assert list(inspect.signature(txlab.compose).parameters) == ["overrides"]
    assert list(inspect.signature(txlab.build).parameters) == ["config"]
    assert list(inspect.signature(txlab.load).parameters) == ["path", "merge"]
    assert txlab.Slot is type(SLOTS["model.attn"])
    from txlab.nn.attention import MHA, SoftmaxAttention, attention
    from txlab.nn.ffn import ffn
    from txlab.nn.norm import norm
    from txlab.nn.position import position
    from txlab.nn.residual import residual
    from txlab.objectives import objective
    from txlab.train.optim import optim

    assert issubclass(MHA, SoftmaxAttention)
    for slot in (attention, ffn, norm, position, residual, objective, optim):
        assert isinstance(slot, txlab.Slot)


def test_the_package_is_typed_and_its_version_is_the_projects():
    package = Path(txlab.__file__).parent
    assert (package / "py.typed").exists()
    project = package.parent / "pyproject.toml"
    assert f'version = "{txlab.__version__}"' in project.read_text(encoding="utf-8")


def test_every_field_has_its_text():
    from txlab.core.docs import field_docs, summary

    silent = [
        f"{slot.path}={option.name}: {name}"
        for slot in SLOTS.values()
        for option in slot.options.values()
        for name in option.config.__dataclass_fields__
        if not field_docs(option.config).get(name)
    ]
    assert not silent
    assert all(summary(o.cls) for slot in SLOTS.values() for o in slot.options.values())
