"""What `python -m txlab` says alone, and with --help: commands, slots, recipes, every key."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from txlab.core.docs import module_summary

_INTRO = """txlab: transformers from interchangeable parts. Fixed slots, open options, one command.

  python -m txlab +recipe=pretrain model.attn=gqa        train: a recipe, and choices of your own
  python -m txlab +recipe=pretrain -m model.attn=mha,gqa,mqa seed=1,2      a sweep, with a table
  python -m txlab +recipe=pretrain debug=fast            all of it in a few seconds
  python -m txlab generate ckpt=RUN prompt="Once upon a time"
  python -m txlab --help                                 every key; --cfg job: the composed run
  eval "$(python -m txlab -sc install=bash)"             tab completion"""


def overview(verbs: Mapping[str, Path]) -> None:
    """Print the screenful; `verbs` is every verb with its file."""
    from txlab.core.hydra import registry
    from txlab.core.slot import SLOTS

    registry.ready()
    print(_INTRO)
    print("\nVerbs (python -m txlab VERB --help)")
    for name, file in verbs.items():
        print(f"  {name:<15} {module_summary(file)}")
    print("\nSlots (python -m txlab list SLOT, python -m txlab show SLOT=NAME)")
    for path, slot in sorted(SLOTS.items()):
        print(f"  {path:<15} {', '.join(slot.options)}")
    print("\nRecipes (+recipe=NAME)")
    for recipe in registry.RECIPES.values():
        print(f"  {recipe.name:<15} {recipe.doc}")


def everything(words: Sequence[str]) -> None:
    """Print all that may be chosen and every key, as `words`, normalised overrides, leave them."""
    from omegaconf import OmegaConf

    from txlab.core.hydra import composed, keys, registry
    from txlab.core.hydra.overrides import split_flags
    from txlab.core.slot import SLOTS

    with registry.uncollected():
        tree = composed(split_flags(words)[1])
    groups = {path: list(slot.options) for path, slot in SLOTS.items()}
    groups |= {group: list(registry.entries(group)) for group in keys.GROUPS}
    print(_HEAD)
    print("\n== Slots and their options, and groups of YAML: choose with group=option ==")
    for path in sorted(path for path in groups if groups[path]):
        print(f"{path}: {', '.join(sorted(groups[path]))}")
    print("\n== Every key: override with key=value ==")
    print(OmegaConf.to_yaml(tree))
    print(_FOOT)


def bash_completion() -> str:
    """The shell function that completes `python -m txlab` and `txlab` by asking Hydra."""
    return _BASH


_HEAD = """txlab: transformers from interchangeable parts.
python -m txlab [verb] [key=value ...]     python -m txlab alone lists the verbs"""

_FOOT = """Flags: --cfg job shows the composed config, -m sweeps over comma-separated values.
Options in full: python -m txlab list [SLOT], python -m txlab show SLOT=NAME
Hydra's own flags: python -m txlab --hydra-help"""

_BASH = r"""_txlab_complete() {
    local line="$COMP_LINE" run
    local module='^ *([^ ]*python[0-9.]*) +-m +txlab( .*)$' script='^ *([^ ]*txlab)( .*)$'
    if [[ "$line" =~ $module ]]; then
        run=("${BASH_REMATCH[1]}" -m txlab); line="txlab${BASH_REMATCH[2]}"
    elif [[ "$line" =~ $script ]]; then
        run=("${BASH_REMATCH[1]}"); line="txlab${BASH_REMATCH[2]}"
    else
        return
    fi
    local choices
    choices=$(COMP_LINE="$line" COMP_POINT=${#line} "${run[@]}" -sc query=bash 2>/dev/null)
    COMPREPLY=($(compgen -o nospace -o default -W "$choices" -- "${COMP_WORDS[COMP_CWORD]}"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _txlab_complete python python3 txlab"""
