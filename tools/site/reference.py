"""The API reference, as Markdown, from signatures and docstrings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# What users import, in the order in which they meet it: a module, and names of it (without any, all public ones).
MODULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("slackwater", "The package itself.", ()),
    ("slackwater.late", "Windows that are corrected when rows come late.", ()),
    ("slackwater.late.query", "What `late.window` returns, and what follows from it.", ("WindowedFrame", "LateQuery")),
    (
        "slackwater.policies.functions",
        "Policies from plain functions.",
        ("by_functions", "by_load", "in_turn", "by_name"),
    ),
    ("slackwater.policies.combined", "Policies side by side.", ("Combined",)),
    ("slackwater.policies.multi_class", "", ("MultiClass",)),
    ("slackwater.policies.periodic", "", ("Periodic",)),
    ("slackwater.testing", "Try policies without Spark.", ()),
    ("slackwater.kafka", "A broker on this machine, and rows that cannot be used.", ()),
    ("slackwater.cluster", "A Spark cluster on this machine.", ()),
    ("slackwater.errors", "What can go wrong.", ()),
)


def reference() -> str:
    """One page: every public function, class, method and field with what its docstring says."""
    parts = [
        "# API reference",
        "",
        "From the docstrings of this version. What is not listed here may change from one version to the next.",
        "",
    ]
    for module_name, about, names in MODULES:
        module = importlib.import_module(module_name)
        chosen = [name for name in (names or _public(module)) if hasattr(module, name)]
        if not chosen:
            continue
        parts += [f"## {module_name}", "", about or _text(module), ""]
        for name in chosen:
            parts += _described(name, getattr(module, name))
    return "\n".join(parts) + "\n"


def _public(module: Any) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if not name.startswith("__")]
    return [
        name
        for name, member in vars(module).items()
        if not name.startswith("_") and getattr(member, "__module__", None) == module.__name__
    ]


def _described(name: str, member: Any) -> Iterator[str]:
    yield from (f"### {name}", "")
    if inspect.isclass(member):
        yield from _class(name, member)
    elif callable(member):
        yield from (f"```python\n{_signature(name, member)}\n```", "", _text(member), "")
    else:
        yield from (f"`{member!r}`", "")


def _class(name: str, kind: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    shown = f"class {name}({bases})" if bases else _signature(f"class {name}", kind)
    yield from (f"```python\n{shown}\n```", "", _text(kind), "")
    if dataclasses.is_dataclass(kind):
        yield from ("| field | type | default |", "|---|---|---|")
        for one in dataclasses.fields(kind):
            default = "" if one.default is dataclasses.MISSING else f"`{one.default!r}`"
            yield f"| `{one.name}` | `{_cell(one.type)}` | {_cell(default)} |"
        yield ""
    for label, member in vars(kind).items():
        if label.startswith("_"):
            continue
        if isinstance(member, property):
            yield from (f"**`{name}.{label}`** {_text(member)}", "")
        elif inspect.isfunction(member) and inspect.getdoc(member):
            yield from (f"**`{_signature(label, member)}`**", "", _text(member), "")


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|")


def _signature(name: str, member: Any) -> str:
    try:
        found = str(inspect.signature(member))
    except (TypeError, ValueError):
        return name
    found = re.sub(r"\(self(, )?", "(", found)
    found = found.replace("'", "")
    if len(name + found) <= 100 or "(" not in found:
        return name + found
    inside, _, after = found[1:].rpartition(")")
    lines = ",\n".join(f"    {parameter}" for parameter in _parameters(inside))
    return f"{name}(\n{lines},\n){after}"


def _parameters(text: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    out, depth = [""], 0
    for character in text:
        depth += (character in "[({") - (character in "])}")
        if character == "," and depth == 0:
            out.append("")
        else:
            out[-1] += character
    return [parameter.strip() for parameter in out if parameter.strip()]


def _text(member: Any) -> str:
    """A docstring as Markdown: code that is indented stays code, a numpy-style list of parameters becomes a list."""
    doc = inspect.getdoc(member) or ""
    if isinstance(member, type) and dataclasses.is_dataclass(member) and doc.startswith(f"{member.__name__}("):
        return ""  # made by dataclasses, not by us
    return re.sub(r"^Parameters\n-+\n", "\n", doc, flags=re.MULTILINE)
