"""W&B and TensorBoard hold the run's own log, each step once, also of a run that was resumed."""

import json
import shutil

import pytest

from tests.train.tiny_run import VOCAB
from tests.train.tracking import histories
from tests.train.tracking.conftest import CONFIG
from txlab.train import checkpoint
from txlab.train.tracking import wandb_history


def test_a_run_that_goes_back_is_tracked_as_if_it_never_had(tracked):
    """Stands at 5 after a process that came to 8: the trackers let go of 6 and 8."""
    run = tracked(8, save_every=5).folder
    histories.assert_tracked(run)
    shutil.rmtree(run / "checkpoints" / "step-000008")
    done = tracked(12, resume=checkpoint.find(run / "checkpoints" / "step-000005"))
    assert [step for step, _ in wandb_history.rows(histories.segments(run)[0])] == [2, 3, 4]
    assert [row["step"] for row in done.log.rows] == [6, 8, 9, 10, 12]
    histories.assert_tracked(run)


def test_what_a_killed_process_had_not_written_is_sent_again(tracked):
    run = tracked(6, save_every=6).folder
    (first,) = histories.segments(run)
    assert wandb_history.cut(first, 2) == 2
    for file in (run / "tensorboard").iterdir():
        file.write_bytes(file.read_bytes()[:-200])
    done = tracked(8, resume=checkpoint.find(run))
    assert [row["step"] for row in done.log.rows] == [8]
    histories.assert_tracked(run)


def test_a_tracker_that_joins_late_hears_all(tracked):
    run = tracked(4, "~logger.wandb", "~logger.tensorboard", save_every=4).folder
    assert not (run / "wandb").exists()
    tracked(6, resume=checkpoint.find(run))
    histories.assert_tracked(run)


def test_what_has_been_sent_to_a_server_is_neither_cut_nor_sent_again(tracked):
    run = tracked(8, save_every=5).folder
    (first,) = histories.segments(run)
    first.with_name(f"{first.name}.synced").touch()
    shutil.rmtree(run / "checkpoints" / "step-000008")
    tracked(12, "~logger.tensorboard", resume=checkpoint.find(run))
    assert list(histories.wandb(run)) == [2, 3, 4, 6, 8, 9, 10, 12]


def test_the_config_and_the_words_of_the_run_are_there(tracked):
    words = ["logger.wandb.tags=[a,b]", "logger.wandb.notes=why", "logger.wandb.group=g"]
    run = tracked(3, *words, "logger.wandb.job_type=sft", "logger.wandb.name=mine").folder
    (file,) = histories.segments(run)
    config, found = {}, None
    for _, record in wandb_history.records(file):
        found = record.run if record.HasField("run") and found is None else found
        updates = [*record.run.config.update, *record.config.update]
        config |= {entry.key: json.loads(entry.value_json) for entry in updates if entry.key}
    assert {key: config[key] for key in CONFIG} == CONFIG
    assert set(config) == {*CONFIG, "_wandb"}
    assert (list(found.tags), found.notes, found.run_group) == (["a", "b"], "why", "g")
    assert (found.job_type, found.display_name) == ("sft", "mine")
    assert found.project == "txlab"


def test_pictures_code_and_summary_come_at_the_end(tracked):
    run = tracked(4, pictures=True).folder
    (file,) = histories.segments(run)
    last = histories.wandb(run)[4]
    assert last["loss._type"] == last["curves._type"] == "image-file"
    files, summary = set(), {}
    for _, record in wandb_history.records(file):
        files |= {entry.path for entry in record.files.files}
        for entry in record.summary.update:
            summary[entry.key or ".".join(entry.nested_key)] = json.loads(entry.value_json)
    assert "code.jsonl" in files
    assert (file.parent / "files" / "code.jsonl").read_bytes() == (run / "code.jsonl").read_bytes()
    rows = histories.local(run).items()
    losses = {row["val/loss"]: step for step, row in rows if "val/loss" in row}
    assert summary["best/val/loss"] == min(losses)
    assert summary["best/step"] == losses[min(losses)]
    assert summary["parameters"] > VOCAB
    assert len(histories.tensorboard(run).Images("curves")) == 1


@pytest.mark.parametrize(("given", "kept"), [("true", [4]), ("all", [2, 4]), ("false", [])])
def test_checkpoints_are_artifacts_when_asked(tracked, given, kept):
    run = tracked(4, f"logger.wandb.log_model={given}", save_every=2, keep_last=1).folder
    (file,) = histories.segments(run)
    made = [
        record.artifact
        for _, record in wandb_history.records(file)
        if record.HasField("artifact") and record.artifact.type == "model"
    ]
    assert [json.loads(one.metadata)["step"] for one in made] == kept
    for one, step in zip(made, kept, strict=True):
        assert set(one.aliases) == {"latest", f"step-{step:06d}"}
        paths = {entry.path: entry.local_path for entry in one.manifest.contents}
        assert {"weights.safetensors", "state.pt", "config.yaml", "COMPLETE"} <= set(paths)
        # keep_last=1 has deleted the first one; what is to be sent is still there, and whole.
        staged = checkpoint.Checkpoint(run / "wandb" / "staged" / f"step-{step:06d}")
        staged.verify_all()
        assert all(str(staged.path) in local for local in paths.values())


def test_texts_of_steps_that_are_run_again_are_there_once(tracked, tmp_path):
    """TensorBoard's reader would show texts twice: they must be gone from the file."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "samples.txt").write_text("--- step 3\none\n\n--- step 6\ntwo\n\n")
    run = tracked(6, save_every=4, keep_last=9).folder
    shutil.rmtree(run / "checkpoints" / "step-000006")
    tracked(6, resume=checkpoint.find(run / "checkpoints" / "step-000004"))
    texts = histories.tensorboard(run).Tensors("samples/text_summary")
    assert [event.step for event in texts] == [3, 6]
    assert [s for s, row in histories.wandb(run).items() if "samples.nrows" in row] == [3, 6]
