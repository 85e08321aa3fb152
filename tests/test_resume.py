"""Resume equals the unbroken run, bit by bit: weights, losses, rates, rows, order of data."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import txlab
from tests.train.tiny_run import unsealed
from txlab.core.errors import RequestError
from txlab.run import prepare_data, train
from txlab.train import checkpoint, folder

TEXT = "".join(
    f"Line {i}: the {w} fox number {i * 7 % 13} jumps.\n\n" for i in range(60) for w in "abc"
)
TINY = [
    *(
        "model.dim=16",
        "model.n_layers=1",
        "model.n_heads=2",
        "model.context=16",
        "model.dropout=0.1",
    ),
    *("tokenizer.vocab_size=300", "data.batch_size=4", "data.micro_batch_size=2", "trainer=cpu"),
    *("train.log_every=4", "schedule.warmup=5", "optim.lr=0.01", "data.val_fraction=0.2"),
]
TIMES = ("tokens_per_s", "mfu")


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return [f"data.path={file}", f"data.cache_dir={tmp_path / 'cache'}"]


def go(folder, text, *words):
    return train(txlab.compose([*TINY, *text, f"run_dir={folder}", *words]))


def rows(folder):
    with (Path(folder) / "metrics.csv").open() as stream:
        return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(stream)]


def weights(folder, step):
    return checkpoint.Checkpoint(Path(folder) / "checkpoints" / f"step-{step:06d}").weights()


def assert_same(a, b, step):
    one, two = weights(a, step), weights(b, step)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


class Stop(Exception):
    pass


def interrupted_at(step, monkeypatch):
    """Training dies right after the step after `step`, as if the process were gone."""
    from txlab.train.module import TrainModule

    original = TrainModule._finish_step

    def finish(self):
        original(self)
        if self.counters.step == step + 1:
            raise Stop

    monkeypatch.setattr(TrainModule, "_finish_step", finish)
    return lambda: monkeypatch.setattr(TrainModule, "_finish_step", original)


@pytest.mark.parametrize("at", [3, 5, 12])
def test_resumed_run_equals_the_unbroken_one(tmp_path, text, monkeypatch, at):
    """CKPT-02, CKPT-08: warm-up 5, cosine to 20, dropout; saved at 3, 5, 12."""
    words = ("train.steps=20", "train.val_every=6")
    go(tmp_path / "whole", text, *words)
    restore = interrupted_at(at, monkeypatch)
    with pytest.raises(Stop):
        go(tmp_path / "cut", text, *words, f"train.save_every={at}")
    restore()
    go(tmp_path / "cut", text, *words, "resume=auto")
    assert_same(tmp_path / "whole", tmp_path / "cut", 20)
    assert rows(tmp_path / "whole") == rows(tmp_path / "cut")


def test_rates_are_those_of_the_formula(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=20", "train.log_every=1")
    rates = [float(row["lr"]) for row in rows(tmp_path / "run")]
    assert rates[:5] == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.01])
    assert rates[-1] == pytest.approx(0.001)
    assert len(rates) == 20


def test_resume_at_the_end_takes_no_step_then_one_more_epoch(tmp_path, text):
    """CKPT-09: a run over exactly one epoch, resumed as it is and with twice the length."""
    first = go(tmp_path / "run", text, "train.epochs=1")
    again = go(tmp_path / "run", text, "train.epochs=1", "resume=auto")
    assert again["step"] == first["step"] == again["updates"]
    assert again["val/loss"] == first["val/loss"]
    longer = go(tmp_path / "run", text, "train.epochs=2", "resume=auto")
    n = len(prepare_data(txlab.compose([*TINY, *text])).train)
    assert first["step"] == -(-n // 4)
    assert longer["step"] == -(-2 * n // 4)
    steps = [int(row["step"]) for row in rows(tmp_path / "run")]
    assert steps == sorted(set(steps))


def test_a_run_cannot_end_before_the_step_it_resumes_at(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=4")
    with pytest.raises(RequestError, match=r"stands at step 4, but the run is to end at step 3"):
        go(tmp_path / "run", text, "train.steps=3", "resume=auto")


def test_data_order_continues(tmp_path, text, monkeypatch):
    from txlab.objectives.next_token import NextToken

    seen = []
    forward = NextToken.forward

    def watch(self, model, batch):
        if model.training:
            seen.append(batch["tokens"].clone())
        return forward(self, model, batch)

    monkeypatch.setattr(NextToken, "forward", watch)
    go(tmp_path / "whole", text, "train.steps=40")
    whole, seen[:] = list(seen), []
    go(tmp_path / "cut", text, "train.steps=40", "train.save_every=13", "train.keep_last=9")
    seen.clear()
    half = tmp_path / "cut" / "checkpoints" / "step-000026"
    go(tmp_path / "branch", text, "train.steps=40", f"resume={half}")
    assert len(seen) == len(whole) - 2 * 26
    assert all(torch.equal(a, b) for a, b in zip(seen, whole[52:], strict=True))
    assert_same(tmp_path / "whole", tmp_path / "branch", 40)


def test_going_back_in_a_run_needs_another_folder(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=4", "train.save_every=2")
    early = tmp_path / "run" / "checkpoints" / "step-000002"
    with pytest.raises(RequestError, match="goes on to step-000004; add run_dir=NEW"):
        go(tmp_path / "run", text, "train.steps=4", f"resume={early}")


def test_a_folder_of_another_run_is_refused(tmp_path, text):
    """However old that run is: its log and checkpoints would be mixed with those of the other."""
    go(tmp_path / "one", text, "train.steps=2")
    go(tmp_path / "other", text, "train.steps=4")
    before = {p: p.read_bytes() for p in (tmp_path / "one").rglob("*") if p.is_file()}
    with pytest.raises(
        RequestError, match=r"run_dir=.*/one holds another run than resume=.*/other"
    ):
        go(tmp_path / "one", text, "train.steps=6", f"resume={tmp_path / 'other'}")
    assert {p: p.read_bytes() for p in (tmp_path / "one").rglob("*") if p.is_file()} == before
    again = go(tmp_path / "other", text, "train.steps=6", f"resume={tmp_path / 'other'}")
    assert again["step"] == 6


def test_another_config_is_refused_with_every_changed_key(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=2")
    with pytest.raises(RequestError) as caught:
        go(
            tmp_path / "run",
            text,
            "train.steps=4",
            "resume=auto",
            "optim.lr=0.5",
            "model.pos=learned",
        )
    assert "optim.lr was 0.01, is 0.5" in str(caught.value)
    assert "model.pos.name was rope, is learned" in str(caught.value)


def test_a_run_folder_in_use_is_refused(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=1")
    with pytest.raises(RequestError, match="holds a run already: resume=auto"):
        go(tmp_path / "run", text, "train.steps=1")


def test_two_processes_never_write_one_run_folder(tmp_path):
    place = str(tmp_path / "run")
    with (
        folder.opened(place, None, "a"),
        pytest.raises(RequestError, match="another process is training there"),
        folder.opened(place, "auto", "b"),
    ):
        pass
    with folder.opened(place, "auto", "c") as free:
        assert free.fresh


def test_a_checkpoint_outside_of_a_run_does_not_say_where_to_write(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=2")
    lone = tmp_path / "lone" / "step"
    shutil.copytree(tmp_path / "run" / "checkpoints" / "step-000002", lone)
    with pytest.raises(RequestError, match=r"lies in no run folder: .* run_dir=NEW"):
        folder.open_folder(None, str(lone), "a")
    assert folder.open_folder(str(tmp_path / "new"), str(lone), "a").path == tmp_path / "new"


def test_resume_auto_starts_anew_where_nothing_is_saved(tmp_path, text):
    assert go(tmp_path / "run", text, "train.steps=2", "resume=auto")["step"] == 2


def test_micro_batches_may_change_on_resume(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=2", "model.dropout=0.0")
    words = ("train.steps=4", "model.dropout=0.0", "resume=auto", "data.micro_batch_size=4")
    assert go(tmp_path / "run", text, *words)["step"] == 4


def test_killed_process_resumes_bit_identically(tmp_path, text):
    """SIGKILL at a random moment of a real process, then resume=auto; CPU."""
    words = [*TINY, *text, "train.steps=60", "train.val_every=20", "train.save_every=7"]
    train(txlab.compose([*words, f"run_dir={tmp_path / 'whole'}"]))
    code = "import sys, txlab; from txlab.run import train; train(txlab.compose(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *words, f"run_dir={tmp_path / 'cut'}"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    root = Path(txlab.__file__).parents[1]
    process = subprocess.Popen(
        command,
        cwd=root,
        env={**environment, "PYTHONPATH": str(root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = tmp_path / "cut" / "checkpoints"
    deadline = time.monotonic() + 120
    while not checkpoint.complete(folder) and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.1 * torch.rand(()).item())
    process.send_signal(signal.SIGKILL)
    process.wait()
    died_at = checkpoint.complete(folder)[-1].step
    train(txlab.compose([*words, f"run_dir={tmp_path / 'cut'}", "resume=auto"]))
    assert died_at < 60
    assert_same(tmp_path / "whole", tmp_path / "cut", 60)
    assert rows(tmp_path / "whole") == rows(tmp_path / "cut")
    assert not list(folder.glob(".tmp-*"))


def test_changed_text_is_refused(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=2")
    (tmp_path / "text.txt").write_text(TEXT + "One more line.\n")
    with pytest.raises(RequestError, match="the data is not what it was"):
        go(tmp_path / "run", text, "train.steps=4", "resume=auto")


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
def test_compiled_and_plain_runs_share_their_checkpoints(tmp_path, text, monkeypatch):
    """CKPT-06: saved compiled, resumed plain and the other way round, loaded plain; same names."""
    from txlab.train.compiling import BACKEND

    monkeypatch.setenv(BACKEND, "aot_eager")
    same = ("model.dropout=0.0", "train.sample=null")
    results = {}
    for first, second in ((False, False), (True, False), (False, True)):
        folder = tmp_path / f"{first}{second}"
        go(folder, text, "train.steps=2", f"train.compile={first}", *same)
        words = ("train.steps=4", f"train.compile={second}", "resume=auto", *same)
        results[first, second] = go(folder, text, *words)["val/loss"]
        assert set(weights(folder, 4)) == set(txlab.load(folder).state_dict()) - {"head.weight"}
    assert results[True, False] == pytest.approx(results[False, False], rel=1e-5)
    assert results[False, True] == pytest.approx(results[False, False], rel=1e-5)


def test_state_of_another_version_is_one_line(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=2")
    file = tmp_path / "run" / "checkpoints" / "step-000002" / "state.pt"
    torch.save({"something": 1}, file)
    unsealed(file.parent)
    with pytest.raises(RequestError, match=r"state\.pt is not a state of this version of txlab"):
        go(tmp_path / "run", text, "train.steps=4", "resume=auto")


def test_a_run_in_parts_is_the_run(tmp_path, text):
    """`train.stop_at` ends a part; the schedule is the whole one's, nothing is validated twice."""
    words = ("train.steps=12", "train.val_every=6", "resume=auto")
    go(tmp_path / "whole", text, *words)
    for at in (5, 6, 7, 12):
        assert go(tmp_path / "parts", text, *words, f"train.stop_at={at}")["step"] == at
    assert go(tmp_path / "parts", text, *words, "train.stop_at=3")["step"] == 12
    assert_same(tmp_path / "whole", tmp_path / "parts", 12)
    assert rows(tmp_path / "whole") == rows(tmp_path / "parts")
