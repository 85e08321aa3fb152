"""Show what exists: `list` all slots, recipes and presets, `list SLOT` its options.

python -m txlab list
python -m txlab list model.attn
"""

from txlab.core import plugins
from txlab.core.docs import summary
from txlab.core.errors import RequestError
from txlab.core.hydra import registry
from txlab.core.hydra.keys import GROUPS
from txlab.core.slot import SLOTS, slot_at


def main(words: list[str]) -> None:
    """Print all slots, or the options of one."""
    registry.ready()
    names = []
    for word in words:
        key, equals, value = word.partition("=")
        if key == "plugins" and equals:
            plugins.load(part.strip() for part in value.strip("[]").split(",") if part.strip())
        else:
            names.append(word)
    if len(names) > 1:
        raise RequestError(f"list takes one slot, not {len(names)}: {' '.join(names)}.")
    if not names:
        _all()
    elif names[0] in GROUPS:
        _group(names[0])
    else:
        _slot(names[0].replace("/", "."))


def _all() -> None:
    for path, slot in sorted(SLOTS.items()):
        print(f"{path:<15} {slot.doc}")
        print(f"{'':<15} {', '.join(slot.options)}")
    for group in GROUPS:
        print(f"{group:<15} {', '.join(registry.entries(group)) or 'none'}")


def _slot(path: str) -> None:
    slot = slot_at(path)
    width = max((len(name) for name in slot.options), default=0) + 2
    print(f"{path}: {slot.doc}")
    for name, option in slot.options.items():
        outside = (
            "" if option.module.startswith("txlab.") else f" [{plugins.provider(option.module)}]"
        )
        print(f"  {name:<{width}}{summary(option.cls)}{outside}")


def _group(group: str) -> None:
    print(f"{group}: choose with {'+' if group == 'recipe' else ''}{group}=NAME")
    for name, doc in registry.entries(group).items():
        print(f"  {name:<14} {doc}")
