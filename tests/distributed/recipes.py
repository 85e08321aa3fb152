"""The three recipes at the smallest size; run as a script, on each of several ranks in turn."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TINY = [
    *("trainer.accelerator=cpu", "data.batch_size=4", "train.steps=5"),
    *("train.sample=null", "train.log_every=1", "optim.lr=1e-3"),
    # Adam divides a gradient by its own size: near zero that makes rounding errors into steps.
    "optim.eps=1e-3",
]
SIZES = [
    *("model.dim=16", "model.n_layers=1", "model.n_heads=2", "model.context=48"),
    # Even: two ranks share the rows of the embedding.
    *("tokenizer.vocab_size=300", "model.vocab_size=300", "model.dropout=0.0"),
]
MADE_UP = ["data.n_train=40", "data.n_val=7"]
LORA = ["adapter=lora", "adapter.r=2"]
RECIPES = {
    "pretrain": ["data=text", *SIZES],
    "sft": ["data=chat", "model.init_from={base}", *MADE_UP],
    "dpo": ["data=pairs", "objective=dpo", "model.init_from={base}", *MADE_UP],
}
VARIANTS = {
    **RECIPES,
    **{f"{name}-lora": [*words, *LORA] for name, words in RECIPES.items()},
}
ALONE = ["trainer=cpu"]
# A rank's micro-batches hold other rows, and other counts, than the one batch does.
TOGETHER = ["data.micro_batch_size=1", "trainer.devices=2"]
SPREADS = {
    "ddp": ["trainer=ddp", *TOGETHER],
    "fsdp": ["trainer=fsdp", *TOGETHER],
    "tp": ["trainer=fsdp_tp", "trainer.strategy.tensor_parallel=2", *TOGETHER],
}


def config_of(folder: Path, name: str, words: list[str], *more: str) -> Any:
    """The config of a run `name` in `folder`, whose run `base` is the one to start from."""
    import txlab
    from txlab.loading import inherited

    places = [f"run_dir={folder / name}", f"data.cache_dir={folder / 'cache'}"]
    if words[0] == "data=text":
        places.append(f"data.path={folder / 'text.jsonl'}")
    given = [*TINY, *places, *(word.format(base=folder / "base") for word in words), *more]
    return inherited(txlab.compose(given), given)[0]


def go(folder: Path, name: str, words: list[str], *more: str) -> None:
    """That run."""
    from txlab.run import train

    train(config_of(folder, name, words, *more))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for variant, chosen in VARIANTS.items():
        for spread, more in SPREADS.items():
            go(Path(sys.argv[1]), f"{variant}-{spread}", chosen, *more)
