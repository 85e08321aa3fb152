"""`equal`: green where two runs must be one, red at the step and the tensor where they part."""

import os
import re
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback

import txlab
from tests.test_resume import TEXT
from txlab.commands import equal
from txlab.core.errors import RequestError
from txlab.run import prepare_data

TINY = [
    *("model.dim=16", "model.n_layers=2", "model.n_heads=2", "model.context=16", "trainer=cpu"),
    *("tokenizer.vocab_size=300", "data.batch_size=8", "data.val_fraction=0.2", "optim.lr=0.01"),
    *("train.steps=40", "schedule.warmup=2", "steps=4"),
]
ROOT = Path(txlab.__file__).parents[1]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    there = tmp_path_factory.mktemp("equal")
    (there / "text.txt").write_text(TEXT)
    lines = [f"{i} {'word ' * (i % 9)}{i * 7 % 13}" for i in range(40)]
    (there / "lines.jsonl").write_text("".join(f'{{"text": "{line}"}}\n' for line in lines))
    return there


@pytest.fixture
def compared(home, capsys):
    """`compared(a, b, *words)`: exit status, and what is said, without the table."""

    def run(a: str, b: str, *words: str) -> tuple[int, str]:
        place = [f"data.path={home}/text.txt", f"data.cache_dir={home}/cache"]
        given = {word.partition("=")[0] for word in words}
        common = [word for word in [*TINY, *place] if word.partition("=")[0] not in given]
        status = equal.main([a, b, *common, *words])
        lines = capsys.readouterr().out.splitlines()
        heads = ("equal ", "different ", "at the end", "largest", "note")
        return status, "\n".join(line for line in lines if line.startswith(heads))

    return run


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param("data.micro_batch_size=8", "data.micro_batch_size=4", marks=pytest.mark.slow),
        ("data.micro_batch_size=8", "data.micro_batch_size=1"),
        ("model.backend=math", "model.backend=sdpa"),
        pytest.param("model.backend=math", "model.backend=banded", marks=pytest.mark.slow),
        pytest.param("", "train.compile=true", marks=pytest.mark.slow),
    ],
)
def test_what_must_not_matter_does_not(compared, monkeypatch, a, b):
    monkeypatch.setenv("TXLAB_COMPILE_BACKEND", "aot_eager")
    status, said = compared(a, b)
    assert status == 0, said
    assert said.startswith("equal        within 0.0001, after each of 4 steps")


def test_rows_of_several_documents_equal_rows_of_one(compared, home):
    """Packed and padded: a step has all documents, so that both have the same ones."""
    words = [f"data.path={home}/lines.jsonl", f"data.cache_dir={home}/cache", *TINY[:5]]
    words += ["tokenizer.vocab_size=300", "data.val_fraction=0"]
    kinds = []
    for packing in ("best_fit", "none"):
        rows = len(prepare_data(txlab.compose([*words, f"data.packing={packing}"])).train)
        kinds.append(f"data.packing={packing} data.batch_size={rows}")
    assert kinds[0].split()[1] != kinds[1].split()[1]
    status, said = compared(*kinds, *words)
    assert status == 0, said


@pytest.mark.parametrize("n", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_run_resumed_at_random_steps_is_the_unbroken_one(compared, n):
    """Dropout, too; to the last bit, before the first step as well."""
    words = (f"resume_at=random:{n}", f"steps={n + 2}", "tolerance=0", "model.dropout=0.1")
    status, said = compared("", "", *words)
    assert status == 0, said
    ends = rf"to the bit, after each of {n + 2} steps, B resumed after( \d+,?){{{n}}}$"
    assert re.search(rf"^equal +{ends}", said, re.M)
    assert "every weight of every step is the same to the bit" in said


class Fault(Callback):
    """Moves one weight after a step."""

    def __init__(self, step: int, name: str, by: float) -> None:
        self.step, self.name, self.by = step, name, by

    def on_step(self, trainer, module) -> None:
        if module.counters.step == self.step:
            with torch.no_grad():
                weight = module.model.get_parameter(self.name)
                getattr(weight, "_local_tensor", weight).view(-1)[0] += self.by


def fault(step: int, name: str, by: float) -> str:
    entries = {"_target_": f"{__name__}.Fault", "step": step, "name": name, "by": by}
    return " ".join(f"+callbacks.fault.{key}={value}" for key, value in entries.items())


def test_a_patched_step_is_named_with_its_tensor(compared):
    name = "layers.1.attn.q.weight"
    status, said = compared("", fault(3, name, 0.01))
    assert status == 1
    found = re.search(
        r"different +from step 3 on: (\S+) by (\S+),.* (\d+) of 256 elements; grad", said
    )
    assert found, said
    assert found[1] == name
    assert float(found[2]) == pytest.approx(0.01, rel=1e-3)
    assert found[3] == "1"
    assert "at the end   different" in said


def test_a_fault_within_the_tolerance_is_none(compared):
    assert compared("", fault(3, "layers.1.attn.q.weight", 1e-7))[0] == 0
    status, said = compared("", fault(3, "layers.1.attn.q.weight", 1e-7), "tolerance=0")
    assert (status, "from step 3 on" in said) == (1, True)


@pytest.mark.parametrize(
    ("b", "where"),
    [
        ("seed=1", r"at the start: layers\.\S+ by .*14 other tensors of 20 as well"),
        ("optim.lr=0.02", r"from step 1 on: layers\.\S+ by .*; gradient norms"),
        ("model.dropout=0.1", r"from step 1 on: the loss is \S+ and \S+, \S+ apart; "),
    ],
)
def test_other_settings_are_told_from_where_they_tell(compared, b, where):
    status, said = compared("", b)
    assert status == 1
    assert re.search(f"^different +{where}", said), said


def test_few_steps_that_move_little_are_not_enough(compared):
    status, said = compared("data.micro_batch_size=8", "data.micro_batch_size=1", "optim.lr=1e-7")
    assert status == 0
    assert re.search(r"note +it has moved by \S+ only: 0\.0001 says little", said)


@pytest.mark.slow
def test_every_other_step_may_do(compared):
    status, said = compared("", fault(3, "layers.1.attn.q.weight", 0.01), "every=2")
    assert status == 1
    assert "from step 4 on" in said


def test_other_lengths_are_told_in_a_line(compared):
    status, said = compared("train.steps=3", "train.steps=2", "schedule=constant")
    assert status == 1
    assert said.startswith("different    A has made 3 steps and B 2: give both")


def test_who_was_not_resumed_is_not_said_to_have_been(compared):
    with pytest.raises(RequestError, match="B ends after 2 steps, so that it was not resumed aft"):
        compared("", "", "train.steps=null", "train.tokens=256", "resume_at=1,2")


def test_other_tensors_are_told_in_a_line(compared):
    with pytest.raises(
        RequestError, match=r"^B: A and B have other tensors \(wrong shape: embed"
    ) as caught:
        compared("", "model.dim=32")
    assert "\n" not in str(caught.value)
    with pytest.raises(RequestError, match=r"other tensors \(.*norm"):
        compared("", "model.norm=none")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a=1"], "equal takes two sets of overrides in quotes"),
        (["", "+recipe=pretrain"], "[+]recipe=pretrain stands where B should"),
        (["seed=1", "+recipe=sft seed=2", "a=1"], 'equal "seed=1" "seed=2" [+]recipe=sft a=1 has'),
        (["", "", "steps=0"], "steps=0: expected at least 1"),
        (["", "", "tolerance=-1"], "tolerance=-1.0: expected 0 or more"),
        (["", "", "resume_at=10"], "resume_at=10: expected steps between 1 and 9"),
        (["", "", "train.steps=3", "resume_at=5"], "expected steps between 1 and 2 .steps=3 is"),
        (["", "", "resume_at=random:10"], "steps=10 has 9 to draw from"),
        (["", "", "run_dir=x"], "run_dir=x: equal has folders of its own"),
        (["", "optim.lr=x"], "B: optim.lr=x"),
        (["model.attn=nope", ""], "A: .*nope"),
        (["", "", "tolerence=1"], "unknown argument tolerence. Did you mean tolerance?"),
    ],
)
def test_wrong_requests(words, message):
    with pytest.raises(RequestError, match=message):
        equal.main(words)


def test_nothing_is_left_behind(compared, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    compared("", "", "steps=1")
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp", "fsdp", "fsdp_tp"])
def test_two_ranks_equal_one(compared, name):
    two = f"trainer={name} trainer.devices=2 trainer.accelerator=cpu"
    status, said = compared("trainer=cpu", two, "tolerance=1e-3")
    assert status == 0, said
    status, said = compared(
        "trainer=cpu", f"{two} {fault(2, 'layers.0.residual.norms.ffn.weight', 0.01)}"
    )
    assert status == 1, said
    assert "from step 2 on: layers.0.residual.norms.ffn.weight" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_two_ranks_resumed_equal_two_that_were_not(compared, name):
    """To the last bit."""
    both = f"trainer={name} trainer.devices=2 trainer.accelerator=cpu model.dropout=0.1"
    status, said = compared(both, both, "resume_at=1,3", "tolerance=0")
    assert status == 0, said
