"""A tokenizer as a Hugging Face directory, which `transformers` loads with equal ids."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from txlab.core.errors import RunError
from txlab.data.tokenizer.library import read
from txlab.data.tokenizer.tokenizer import Tokenizer


def texts(tokenizer: Tokenizer, *, length: int | None = None) -> dict[str, str]:
    """The files by name; `length`: tokens that a model of it may be given at most.

    Where documents begin with bos, so do the ids that `transformers` makes by default.
    """
    from tokenizers import processors

    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "tokenizer.json")
        library, _, _ = read(Path(folder) / "tokenizer.json")
    bos = tokenizer.bos_id
    if bos is not None and library.encode("").ids[:1] != [bos]:
        token = library.id_to_token(bos)
        library.post_processor = processors.TemplateProcessing(  # pyright: ignore
            single=f"{token} $A", special_tokens=[(token, bos)]
        )
    special = {name: token for name, token in tokenizer.special.items() if token is not None}
    ends = list(tokenizer.end_ids)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "add_bos_token": bos is not None,
        "clean_up_tokenization_spaces": False,
        **({} if length is None else {"model_max_length": length}),
    }
    generation = {
        "bos_token_id": bos,
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "pad_token_id": tokenizer.pad_id,
    }
    found = {
        "tokenizer.json": _json(json.loads(library.to_str())),
        "tokenizer_config.json": _json(settings),
        "special_tokens_map.json": _json(special),
        "generation_config.json": _json(generation),
    }
    if tokenizer.template is not None:
        found["chat_template.jinja"] = tokenizer.template
    return found


def write(tokenizer: Tokenizer, target: Path) -> None:
    """Write a new directory, whole or not at all; RunError where the disk refuses."""
    folder = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    try:
        folder.mkdir(parents=True)
        for name, text in texts(tokenizer).items():
            (folder / name).write_text(text, encoding="utf-8")
        folder.rename(target)
    except OSError as error:
        raise RunError(f"writing {target} failed ({error}): make room and try again.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _json(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
