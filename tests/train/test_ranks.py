"""What launchers say of ranks: ours, torchrun's, SLURM's."""

import importlib
import os
import threading
from datetime import timedelta

import pytest

from txlab.core.errors import RequestError
from txlab.train import ranks
from txlab.train.config import Train
from txlab.train.trainer import make_trainer

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "123456",
    "SLURM_JOB_NAME": "pretrain",
}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher; and what is written into the environment is taken out again."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in list(os.environ):
        if name in NAMES or name.startswith(("SLURM_", "GROUP_")):
            del os.environ[name]


def test_alone():
    assert not ranks.started()
    assert ranks.leads()
    assert not ranks.can_meet()


def test_slurm_tasks_are_ranks_that_know_where_to_meet():
    os.environ.update(SLURM)
    assert ranks.started()
    assert not ranks.leads()
    assert ranks.can_meet()
    assert os.environ["MASTER_ADDR"] == "gpu07"
    assert os.environ["MASTER_PORT"] == "18456"
    assert [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK")] == [
        *("3", "4", "1", "1")
    ]


def test_a_place_that_is_given_is_taken():
    os.environ.update(SLURM | {"MASTER_ADDR": "there", "MASTER_PORT": "5"})
    assert ranks.can_meet()
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("there", "5")


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_a_person_in_a_slurm_job_is_no_rank(name: str):
    """Nor a batch script with room for several tasks that starts one process without srun."""
    os.environ.update(SLURM | {"SLURM_JOB_NAME": name})
    assert not ranks.started()
    assert not ranks.can_meet()


def test_one_task_is_no_rank():
    os.environ.update(SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"})
    assert not ranks.started()


def test_the_first_rank_says_whom_it_waits_for(monkeypatch, capsys):
    """A batch script with two tasks that starts one process without srun: two names of one job."""
    os.environ.update(SLURM | {"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_NODELIST": "n1"})
    said, say = threading.Event(), ranks._say_who_waits
    monkeypatch.setattr(ranks, "QUIET", timedelta(0))
    monkeypatch.setattr(ranks, "_say_who_waits", lambda: (say(), said.set()))

    def rendezvous(url, timeout):
        assert said.wait(60)
        yield "store", 0, 2

    module = importlib.import_module("torch.distributed.rendezvous")
    monkeypatch.setattr(module, "rendezvous", rendezvous)
    assert ranks.can_meet()
    assert ranks._store.__wrapped__() == "store"
    assert "rank 0 of 2 waits for the others at n1:18456: srun or" in (
        err := capsys.readouterr().err
    )
    assert err.endswith("set SLURM_NTASKS=1.\n")


def test_what_lightning_does_not_take_of_a_job_is_one_line():
    os.environ.update(SLURM | {"SLURM_NTASKS": "2", "SLURM_PROCID": "0"})
    with pytest.raises(RequestError, match=r"trainer: You set .*Use `--ntasks-per-node=2`"):
        make_trainer({"accelerator": "cpu"}, Train(), [])
