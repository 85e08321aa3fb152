"""SmolLM2 beside TRL: ids and masks of chats, one step of SFT and DPO with LoRA."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import txlab
from tests.real.trl_peer import dpo_records, sft_records, trainer
from txlab.data.batch import Batch
from txlab.data.chat.template import Template
from txlab.loading import build, inherited, load
from txlab.models import Model
from txlab.run import build_objective, prepare_data

PLACE = os.environ.get("TXLAB_SMOLLM2")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(PLACE is None, reason="TXLAB_SMOLLM2 names no directory of SmolLM2"),
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed"),
    pytest.mark.filterwarnings("default"),  # TRL's and accelerate's are no concern of ours
]
FOLDER = Path(PLACE or "")
LINEARS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o"}
ROWS = 4


def said(*contents: str) -> list[dict[str, str]]:
    """A chat of user and assistant in turn."""
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]


CHATS = {
    "one turn": said("What is 2 plus 3?", "It is 5."),
    "three turns": said("Hi", "Hello.", "And now?", "More.", "The end?", "Yes, the end."),
    "system": [{"role": "system", "content": "Be brief."}, *said("Why?", "Because.")],
    "two answers in a row": [*said("Go on", "One."), {"role": "assistant", "content": "Two."}],
    "prompt ends in a space": said("Tell me a number: ", "5"),
    "half of a merge": said("Complete: straw", "berry"),
    "almost a control token": said("a < b | c > d", "<b>|im_start|</b>"),
    "other scripts": said("日本の首都は?", "東京です。 🙂"),
    "code": said("Write f", "def f(x):\n    return x\n\n\nprint(f(1))"),
}
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
MARKED = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\n"
    + SYSTEM
    + "<|im_end|>\n{% endif %}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}"
    "{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}"
    "{% endfor %}"
)
"""The model's own template with the marks that TRL's assistant_only_loss wants."""


@pytest.mark.parametrize("name", CHATS)
def test_ids_and_mask_of_a_chat(name: str) -> None:
    from transformers import AutoTokenizer

    messages, peer = CHATS[name], AutoTokenizer.from_pretrained(FOLDER)
    encoded = Template(load(FOLDER).tokenizer).encode(messages)
    assert encoded.ids == peer.apply_chat_template(messages)["input_ids"]
    marked = peer.apply_chat_template(
        messages, chat_template=MARKED, return_dict=True, return_assistant_tokens_mask=True
    )
    assert marked["input_ids"] == encoded.ids
    assert [int(answer >= 0) for answer in encoded.answer] == marked["assistant_masks"]
    own = [i for i, answer in zip(encoded.ids, encoded.answer, strict=True) if answer >= 0]
    answers = [m["content"] for m in messages if m["role"] == "assistant"]
    assert peer.decode(own) == "".join(f"{text}<|im_end|>" for text in answers)


def ours(goal: str, folder: Path) -> tuple[Model, Any, Batch]:
    """Model with an adapter, objective and first batch, as a command line makes them."""
    words = [
        *(f"+recipe={goal}", f"model.init_from={FOLDER}", "adapter=lora", "adapter.r=8"),
        *("adapter.targets=[attention]", f"data.batch_size={ROWS}", f"data.cache_dir={folder}"),
        *("data.n_train=40", "data.n_val=0"),
        *(["data.packed=false"] if goal == "sft" else ["objective.beta=0.1"]),
    ]
    config, _ = inherited(txlab.compose(words), words)
    data = prepare_data(config)
    goal_ = build_objective(config, data)
    model = build(config).train()
    goal_.bind(model)
    (batch,) = data.step_batches().at(0)
    return model, goal_, batch


def adapter_weights(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The trained parameters, under our names without what peft puts into them."""
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            words = name.replace("self_attn", "attn").split(".")
            words = [LINEARS.get(word, word) for word in words[words.index("layers") :]]
            found[".".join(words)] = parameter
    return found


@pytest.mark.parametrize("goal", ["sft", "dpo"])
def test_a_step_has_the_loss_and_the_gradients_of_trl(goal: str, tmp_path: Path) -> None:
    model, objective, batch = ours(goal, tmp_path / "cache")
    records = sft_records(batch) if goal == "sft" else dpo_records(batch)
    peer = trainer(
        goal,
        FOLDER,
        records,
        output_dir=str(tmp_path / "trl"),
        per_device_train_batch_size=ROWS,
        gradient_checkpointing=False,
        **({"beta": 0.1, "loss_type": ["sigmoid"]} if goal == "dpo" else {}),
    )
    mine, theirs = adapter_weights(model), adapter_weights(peer.model)
    assert list(mine) == list(theirs)
    assert len(mine) == 2 * 4 * len(model.layers)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in mine.items():  # B as well: at its zeros A has no gradient
            parameter.normal_(std=0.02, generator=generator)
            theirs[name].copy_(parameter)
    inputs = next(iter(peer.get_train_dataloader()))
    turn = slice(None) if goal == "sft" else torch.arange(2 * ROWS).view(ROWS, 2).T.flatten()
    assert torch.equal(inputs["input_ids"].cpu(), batch["tokens"][turn])
    peer.current_gradient_accumulation_steps = 1  # else set by the loop around the step
    expected = float(peer.training_step(peer.model, inputs))
    loss = objective(model, batch)
    value = loss.sum / loss.count
    value.backward()
    worst, largest = difference(mine, theirs)
    print(f"{goal}: loss {value.item():.6f}, TRL {expected:.6f}; ", end="")
    print(f"gradients up to {largest:.1e}, {worst:.1e} apart")
    assert value.item() == pytest.approx(expected, abs=1e-5)
    assert worst < 1e-5
    assert largest > 1e-2
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in mine.values())


def difference(mine: dict[str, Any], theirs: dict[str, Any]) -> tuple[float, float]:
    """Largest difference of two entries of the gradients, and the largest entry."""

    def most(tensors: list[Tensor]) -> float:
        return max(tensor.abs().max().item() for tensor in tensors)

    apart = [p.grad - theirs[name].grad for name, p in mine.items()]
    return most(apart), most([p.grad for p in mine.values()])
