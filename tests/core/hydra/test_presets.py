"""A misspelt key of a callback, logger or trainer is told the one that was meant."""

import pytest

import txlab
from txlab.core.errors import RequestError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("callbacks=norms callbacks.norms.evry=3", "Did you mean callbacks.norms.every?"),
        ("callbacks=norms callbacks.norm.every=3", "Did you mean callbacks.norms?"),
        ("callbacks.norms.every=3", "this run has no callbacks.norms: add callbacks=norms"),
        ("callbacks.ema.decay=0.9", "callbacks=ema sets keys of train."),
        ("logger=wandb logger.wandb.projct=x", "Did you mean logger.wandb.project?"),
        ("logger.wandb.project=x", "this run has no logger.wandb: add logger=wandb"),
        ("trainer.devcies=2", "Did you mean trainer.devices?"),
        ("trainer.deterministic=true", "write +trainer.deterministic=... to add it"),
        ("trainer=fsdp trainer.strategy.tensor_paralel=2", "trainer.strategy.tensor_parallel?"),
        ("trainer.strategy.tensor_parallel=2", "add trainer=fsdp_tp, fsdp or ddp"),
        ("trainer=ddp trainer.strategy.tensor_parallel=2", "no fields: add trainer=fsdp or"),
        ("logger=wandb logger.wandb.zzz=x", "write +logger.wandb.zzz=... to add it"),
        ("callbacks.mine._target_=a.b", "write +callbacks.mine"),
    ],
)
def test_the_way_out_is_named(words: str, said: str):
    with pytest.raises(RequestError) as refused:
        txlab.compose(words.split())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["ddp", "fsdp", "fsdp_tp"])
def test_several_machines_are_asked_for_as_the_docs_say(name: str):
    config = txlab.compose([f"trainer={name}", "trainer.num_nodes=2"])
    assert config.trainer is not None
    assert config.trainer["num_nodes"] == 2
