"""The pages in docs/ are about all there is, and their commands compose."""

import re
import shlex
from pathlib import Path

import pytest

import txlab
from txlab.core.hydra import prepare
from txlab.core.slot import slot_at
from txlab.nn.position.scaling import MAY, NEEDS, Scaling
from txlab.train.config import PRECISIONS

DOCS = Path(__file__).parents[1] / "docs"
POSITIONS = (DOCS / "positions.md").read_text(encoding="utf-8")


def rows(text: str, key: str) -> dict[str, list[str]]:
    """The table whose first column is headed `key`: the rest of each row by its first word."""
    table = text.split(f"| `{key}` |")[1].split("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {cell[0].strip("`"): cell[1:] for cell in cells}


def test_every_position_says_what_happens_past_its_length():
    told = rows(POSITIONS, "model.pos")
    assert set(told) == set(slot_at("model.pos").options)
    assert [name for name, cells in told.items() if "refused" in cells[-1]] == ["learned"]


def test_every_tokenizer_says_what_it_loses():
    told = rows((DOCS / "tokenizers.md").read_text(encoding="utf-8"), "tokenizer")
    assert {name.partition("`")[0] for name in told} == set(slot_at("tokenizer").options)


def test_every_callback_and_precision_is_told():
    told = rows((DOCS / "callbacks.md").read_text(encoding="utf-8"), "callbacks")
    presets = DOCS.parent / "conf" / "callbacks"
    assert set(told) == {path.stem for path in presets.glob("*.yaml")}
    told = rows((DOCS / "precision.md").read_text(encoding="utf-8"), "train.precision")
    assert tuple(told) == ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "64-true")
    assert set(told) == set(PRECISIONS)


def test_every_data_option_has_its_page():
    told = {"text", "chat", "pairs", "prompts"}
    for page in ("corruption", "diagnostics", "pictures"):
        told |= set(rows((DOCS / f"{page}.md").read_text(encoding="utf-8"), "data="))
    assert told == set(slot_at("data").options)


def test_every_scaling_lists_the_fields_it_reads():
    told = rows(POSITIONS, "model.pos.scaling")
    assert set(told) == {str(scaling) for scaling in Scaling}
    for name, cells in told.items():
        scaling = Scaling(name)
        assert set(re.findall(r"\w+", cells[1])) - {"nothing"} == {
            *NEEDS[scaling],
            *MAY.get(scaling, ()),
        }


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_commands_compose(page):
    blocks = re.findall(r"```\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if "python -m txlab" in line]
    for line in lines:
        words = [word for word in shlex.split(line)[3:] if not word.startswith("model.init_from=")]
        if "-m" in words:
            assert prepare([word for word in words if word != "-m"], multirun=True)
        elif words and words[0].startswith("+recipe"):
            # Recipes that need a start, as their data: there is no run to start from.
            words[0] = {"+recipe=sft": "data=chat", "+recipe=dpo": "data=pairs"}.get(
                words[0], words[0]
            )
            assert txlab.compose(words).model.name == "decoder"


CHAT = (DOCS / "chat.md").read_text(encoding="utf-8")


def test_every_form_and_every_task_of_chats_is_told():
    from txlab.data.chat.forms import KEYS
    from txlab.data.chat.tasks import Task

    assert set(rows(CHAT, "data.tasks")) == set(Task)
    forms = CHAT.split("| `data.format` of chats |")[1].split("\n\n")[0]
    for form, keys in KEYS.items():
        line = next(line for line in forms.splitlines() if line.startswith(f"| `{form}`"))
        assert all(f"`{key}`" in line for key in keys)
