"""What is refused before Hydra sees it, each in one line with the way out."""

import pytest

from txlab.core.errors import RequestError
from txlab.core.hydra import compose, prepare
from txlab.core.hydra.keys import owners_of

REFUSED = [
    ("model.attn=gqx", "unknown option 'gqx' of model.attn. Did you mean gqa? There are:"),
    ("model/attn=gqx", "unknown option 'gqx' of model.attn. Did you mean gqa?"),
    ("model.atn=gqa", "unknown key model.atn. Did you mean model.attn"),
    (
        "model.attn.n_kv_head=2",
        "unknown key model.attn.n_kv_head. Did you mean model.attn.n_kv_heads?",
    ),
    ("sede=1", "unknown key sede. Did you mean seed"),
    ("dim=3", "unknown key dim. Did you mean model.dim?"),
    ("learning_rte=1", "unknown key learning_rte. Keys: "),
    ("seed.x=1", "unknown key seed.x: seed is a single value."),
    ("+model.foo=1", "+model.foo=1: unknown key model.foo."),
    ("+model.foo=1", "A new key cannot be added: nothing would read it."),
    ("+model.dim=1", "model.dim exists, so drop the +: model.dim=1."),
    ("++train.steps=3", "train.steps exists, so drop the ++: train.steps=3."),
    ("~train.steps", "to unset a value write train.steps=null."),
    ("~model.attn", "a slot cannot be empty; it takes mha, mqa, gqa"),
    ("model.attn=null", "a slot cannot be empty"),
    ("model.attn=", "a slot cannot be empty"),
    ("model.attn.name=mha", "cannot be set: choose the option itself, model.attn=mha."),
    ("model.name=decoder", "cannot be set: choose the option itself, model=decoder."),
    ("model.attn=mha,gqa", "names 2 options: add -m to run them all."),
    ("seed=1,2", "seed=1,2 lists several values: add -m to run them all"),
    ("model.attn", "cannot read 'model.attn': expected key=value"),
    ("=3", "cannot read '=3': expected key=value"),
    ("+recipe=pretran", "unknown recipe 'pretran'. Did you mean pretrain?"),
    ("debug=overfi", "unknown debug 'overfi'. Did you mean overfit?"),
    ("trainer=cpx", "unknown trainer 'cpx'. Did you mean cpu?"),
    ("trainer=null", "trainer=null: name one of cpu, ddp, default, fsdp, fsdp_tp, or leave"),
    ("trainer=", "trainer=: name one of cpu, ddp, default, fsdp, fsdp_tp, or leave"),
    ("trainer=5", "trainer=5: name one of cpu, ddp, default, fsdp, fsdp_tp, or leave"),
    ("+trainer=5", "+trainer=5: name one of cpu, ddp, default, fsdp, fsdp_tp"),
    ("logger=null", "logger=null: name one of csv, tensorboard, wandb, or leave the word out."),
    ("logger=[csv,null]", "logger=[csv,null]: name one of csv, tensorboard, wandb"),
    ("logger=[csv,wandbb]", "unknown logger 'wandbb'. Did you mean wandb? There are: csv, tensor"),
    ("callbacks=5", "callbacks=5: name one of early_stopping, ema, memory, metrics, norms, "),
    ("callbacks=foo", "unknown callbacks 'foo'. There are: early_stopping, ema, "),
    ("debug=true", "debug=true: name one of fast, overfit, profile, or leave the word out"),
    ("recipe=null", "recipe=null: name one of diagnose, dpo, "),
    ("data=5", "unknown option '5' of data. There are: "),
    ("data=null", "data=null: a slot cannot be empty; it takes "),
    ("train.steps=abc", "train.steps=abc: expected a whole number."),
    ("train.steps=1.5", "train.steps=1.5: expected a whole number."),
    ("optim.lr=no", "optim.lr=no: expected a number."),
    ("model.tie_embeddings=maybe", "model.tie_embeddings=maybe: expected true or false."),
    ("model.tie_embeddings=2", "model.tie_embeddings=2: expected true or false."),
    ("model.tie_embeddings=yes", "model.tie_embeddings=yes: expected true or false."),
    ("model.tie_embeddings='2'", "model.tie_embeddings=2: expected true or false."),
    ("train.compile=0", "train.compile=0: expected true or false."),
    ("model.attn.qk_norm=on", "model.attn.qk_norm=on: expected true or false."),
    ("data.batch_size=null", "data.batch_size=null: expected a whole number."),
    ("data.documents=apart", "data.documents=apart: expected one of "),
    ("model.pattern.attn=mha", "model.pattern.attn: expected a list such as [a,b]."),
    ("train=5", "train: expected keys below it, such as train.steps="),
    ("trainer.max_steps=5", "trainer.max_steps is set by txlab: use train.steps."),
    ("+trainer.max_steps=5", "trainer.max_steps is set by txlab: use train.steps."),
    ("+trainer.accumulate_grad_batches=2", "use data.micro_batch_size."),
    ("+trainer.gradient_clip_val=1", "use train.clip."),
    ("+trainer.precision=16", "use train.precision."),
    ("+trainer.val_check_interval=3", "use train.val_every."),
    ("+trainer.use_distributed_sampler=true", "txlab shards the order of the data itself."),
    (
        "trainer.foo=5",
        "trainer.foo is not in the composed config: write +trainer.foo=... to add it.",
    ),
    ("train.precision=fp8", "train.precision=fp8: expected one of 32-true, "),
    ("train.val_every=0", "train.val_every=0: expected a number of at least 1."),
    ("train.clip=-1", "train.clip=-1.0: expected a norm above 0"),
    ("model.dim=30 model.n_heads=4", "model.dim=30 is not a multiple of model.n_heads=4"),
    ("seed=-1", "seed=-1: expected 0 <= seed"),
    ("model.n_layers=${nowhere}", "model.n_layers refers to what does not exist: "),
    ("optim.betas=[0.9]", "optim.betas=[0.9]: expected 2 values."),
    ("model.dim={", "cannot read 'model.dim={'"),
    (
        "plugins=[no_such_module]",
        "plugins=[no_such_module] cannot be imported: ModuleNotFoundError",
    ),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_bad_requests_are_refused_in_one_line(words: str, said: str):
    with pytest.raises(RequestError) as error:
        compose(words.split(" "))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "To append to your config" not in str(error.value)


def test_a_field_of_another_option_names_its_owners():
    with pytest.raises(RequestError) as error:
        compose(["model.attn=mha", "model.attn.n_kv_heads=2"])
    assert str(error.value) == (
        "model.attn.n_kv_heads is no field of the chosen model.attn; it belongs to "
        + ", ".join(owners_of("model.attn.n_kv_heads"))
        + "."
    )
    assert "model.attn=gqa" in str(error.value)
    assert "model.attn=mha" not in str(error.value)


def test_recipes_come_first_then_presets_then_the_rest():
    words = ["seed=1", "debug=fast", "model/attn=mha", "recipe=pretrain", "-m", "--cfg", "job"]
    assert prepare(words) == [
        *("-m", "--cfg", "job"),
        *("+recipe=pretrain", "+debug=fast", "seed=1", "model.attn=mha"),
    ]


def test_sweeps_keep_their_commas_and_each_value_is_read():
    words = prepare(["model.attn=mha,gqa", "train.tokens=1k,2k", "seed=1,2"], multirun=True)
    assert words[:3] == ["model.attn=mha,gqa", "train.tokens=1000,2000", "seed=1,2"]
    with pytest.raises(RequestError, match="unknown option 'gqx'"):
        prepare(["model.attn=mha,gqx"], multirun=True)
    assert prepare(["data.field=a b,c"], multirun=True) == ["data.field='a b',c"]
    assert prepare(["seed=range(1,4)"], multirun=True) == ["seed=range(1,4)"]


def test_values_with_equals_signs_after_a_flag_are_left_alone():
    assert prepare(["-cd", "a=b", "seed=1"]) == ["-cd", "a=b", "seed=1"]


def test_truth_values_are_read_as_they_are_written():
    words = ["train.compile=True", "model.tie_embeddings=false", "train.one_batch=${train.compile}"]
    config = compose(words)
    assert (config.train.compile, config.model.tie_embeddings) == (True, False)
    assert config.train.one_batch is True
    assert prepare(["train.compile=true,false"], multirun=True) == ["train.compile=true,false"]
    with pytest.raises(RequestError, match=r"train\.compile=1: expected true or false"):
        prepare(["train.compile=true,1"], multirun=True)


def test_the_last_of_two_choices_counts():
    assert compose(["model.attn=gqa", "model.attn=mha"]).model.attn.name == "mha"
    assert compose(["seed=1", "seed=2"]).seed == 2


def test_free_mappings_take_new_keys():
    config = compose(["+trainer.profiler=simple", "+callbacks.x._target_=a.B", "~trainer.devices"])
    assert config.trainer == {"accelerator": "auto", "profiler": "simple"}
    assert config.callbacks == {"x": {"_target_": "a.B"}}


def test_null_is_the_option_none_where_a_slot_has_one():
    assert prepare(["adapter=null"]) == ["adapter=none"]
    assert prepare(["adapter=null,lora"], multirun=True) == ["adapter=none,lora"]
    assert prepare(["model.pos=null"]) == ["model.pos=none"]


@pytest.mark.parametrize(
    ("value", "alone", "swept"),
    [
        ("all", "[all]", "[all]"),
        ("q,v", "[q,v]", "[q],[v]"),
        ("[q,v]", "[q,v]", "[q,v]"),
        ("layers.*.attn.q,[k,v]", None, "[layers.*.attn.q],[k,v]"),
    ],
)
def test_a_list_of_words_needs_no_brackets(value: str, alone: str | None, swept: str):
    words = ["adapter=lora", f"adapter.targets={value}"]
    assert prepare(words, multirun=True)[1] == f"adapter.targets={swept}"
    if alone is not None:
        assert prepare(words)[1] == f"adapter.targets={alone}"
        assert compose(words).adapter.targets == alone.strip("[]").split(",")
