"""SmolLM2-135M-Instruct through the importer: logits, answer, tuned from the command line.

TXLAB_SMOLLM2=DIR names its Hugging Face directory (config.json, model.safetensors, tokenizer).
"""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import txlab
from tests.real.chats import write
from txlab.models import Model

PLACE = os.environ.get("TXLAB_SMOLLM2")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(PLACE is None, reason="TXLAB_SMOLLM2 names no directory of SmolLM2"),
]
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
PROMPTS = [
    QUESTION,
    "Once upon a time, there was a little girl who",
    "def fibonacci(n):\n    ",
    "The mitochondrion is the",
    "1, 1, 2, 3, 5, 8, 13,",
    "Water boils at a temperature of",
    "La capitale de la France est",
    "Dear Sir or Madam,\n\nI am writing to",
    "x",
    "  leading spaces and\ttabs\n\n\n",
    "SELECT name FROM users WHERE",
    "日本の首都は",
    "To be, or not to be, that is the",
    "{'key': [1, 2, 3], 'other':",
    "🙂🙃 emoji and naïve café",
    "In 1969, the first humans landed on",
    "The quick brown fox jumps over the lazy dog. " * 8,
    "Q: What is 2 + 2?\nA:",
    "<html><body><h1>",
    "Roses are red, violets are",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(PLACE or "")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Model:
    return txlab.load(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def test_logits_equal_transformers_on_20_prompts(folder: Path, ours: Model, theirs: Any) -> None:
    from transformers import AutoTokenizer

    their_tokenizer, tokenizer = AutoTokenizer.from_pretrained(folder), ours.tokenizer
    worst = 0.0
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        assert ids == their_tokenizer.encode(prompt)
        tokens = torch.tensor([ids])
        expected = theirs(tokens).logits
        worst = max(worst, (ours.logits(ours(tokens).states) - expected).abs().max().item())
    print(f"largest difference of logits: {worst:.1e}")
    assert worst < 1e-4


def test_greedy_answer_through_the_chat_template(folder: Path, ours: Model, theirs: Any) -> None:
    from transformers import AutoTokenizer

    from txlab.data.chat.template import Template
    from txlab.models.generate import generate
    from txlab.models.sampling import Sampling

    messages = [{"role": "user", "content": QUESTION}]
    template = Template(ours.tokenizer)
    prompt = template.prompt(messages)
    peer = AutoTokenizer.from_pretrained(folder)
    rendered = peer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert template.render(messages, generation_prompt=True) == rendered
    assert prompt == peer.encode(rendered)
    sampling = Sampling(temperature=0, max_new_tokens=30)
    (made,) = generate(ours, [prompt], sampling, end_ids=template.end_ids)
    assert made.reason == "end token"
    assert ours.tokenizer.decode(made.tokens) == ANSWER
    full = theirs.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=30)
    assert full[0, len(prompt) :].tolist() == made.tokens


@pytest.mark.parametrize("goal", ["sft", "dpo"])
def test_lora_learns_in_20_steps_from_the_command_line(
    goal: str, folder: Path, tmp_path: Path
) -> None:
    data = write(tmp_path, 100)[goal == "dpo"]
    words = [f"+recipe={goal}", f"model.init_from={folder}", "adapter=lora", f"data.path={data}"]
    words += ["adapter.targets=[attention]", "data.batch_size=4", f"data.cache_dir={tmp_path}"]
    words += ["train.steps=20", "train.log_every=1", "train.val_every=null", "train.sample=null"]
    words += ["data.val_fraction=0", f"run_dir={tmp_path / 'run'}", "trainer=cpu"]
    words += ["data.packed=false"] if goal == "sft" else ["optim.lr=5e-4"]
    done = subprocess.run(
        [sys.executable, "-m", "txlab", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "run" / "metrics.csv").open() as stream:
        losses = [float(row["train/loss"]) for row in csv.DictReader(stream)]
    print(f"{goal}: {' '.join(f'{loss:.3f}' for loss in losses)}")
    assert len(losses) == 20
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
