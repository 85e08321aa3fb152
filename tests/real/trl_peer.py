"""TRL's trainers for LoRA on a Hugging Face directory, fed with rows that txlab has made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from txlab.data.batch import IGNORE, Batch

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
Record = dict[str, list[int]]


def sft_records(batch: Batch) -> list[Record]:
    """Ids and labels of each row without its padding; TRL's labels stand at their own token."""
    found = []
    for row in range(len(batch["tokens"])):
        n = int(batch["valid"][row].sum())
        labels = [IGNORE, *batch["labels"][row, : n - 1].tolist()]
        found.append({"input_ids": batch["tokens"][row, :n].tolist(), "labels": labels})
    return found


def dpo_records(batch: Batch) -> list[Record]:
    """Ids of prompt, chosen and rejected answer of each pair of rows."""
    rows = sft_records(batch)
    found = []
    for one, two in zip(rows[0::2], rows[1::2], strict=True):
        begin = next(i for i, label in enumerate(one["labels"]) if label != IGNORE)
        found.append(
            {
                "prompt_ids": one["input_ids"][:begin],
                "chosen_ids": one["input_ids"][begin:],
                "rejected_ids": two["input_ids"][begin:],
            }
        )
    return found


def trainer(goal: str, folder: Path, records: Sequence[Record], **settings: Any) -> Any:
    """TRL's trainer for `goal` (sft, dpo): fp32 on the CPU, rows in the order given.

    LoRA of rank 8 and alpha 16 on q, k, v, o. All that is not in `settings` is TRL's own default,
    among it gradient checkpointing.
    """
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    class SFT(SFTTrainer):
        def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
            return dataset

    class DPO(DPOTrainer):
        def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
            return dataset

    kind, config = (SFT, SFTConfig) if goal == "sft" else (DPO, DPOConfig)
    arguments = config(
        **{
            "use_cpu": True,
            "bf16": False,
            "report_to": [],
            "save_strategy": "no",
            "disable_tqdm": True,
            "train_sampling_strategy": "sequential",
            **settings,
        }
    )
    return kind(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=arguments,
        train_dataset=Dataset.from_list(list(records)),
        processing_class=AutoTokenizer.from_pretrained(folder),
        peft_config=LoraConfig(r=8, lora_alpha=16, target_modules=TARGETS),
    )
