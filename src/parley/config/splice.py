"""Change one setting in the text of `config.yaml` and leave every other character alone.

The places come from the parsed nodes. What cannot be done in place raises `Unspliceable`; the
caller checks every result by reading it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from parley.config.document import Document, SettingPath, Value

__all__ = ["Unspliceable", "put", "remove"]

_PLAIN: Final = re.compile(r"[A-Za-z][\w./@+-]*(?::[\w./@+-]+)*", re.ASCII)
_NOT_TEXT: Final = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_STEP: Final = "  "


class Unspliceable(Exception):
    """This change cannot be made in place."""


def put(document: Document, path: SettingPath, value: Value) -> str:
    """The text with the setting at `path` set to `value`."""
    text = document.text
    node: Node | None = document.root
    if node is None:
        return _ended(text, document) + _lines(path, value, indent="", newline=_newline(text))
    key: ScalarNode | None = None
    indent = ""
    for depth, name in enumerate(path):
        if not isinstance(node, MappingNode) or (node.flow_style and node.value):
            raise Unspliceable
        if _is_empty_flow(node):
            return _fill(document, key, node, (path[depth:], value, indent + _STEP))
        indent = " " * node.value[0][0].start_mark.column
        entry = _entry(node, name)
        if entry is None:
            rest = _lines(path[depth:], value, indent=indent, newline=_newline(text))
            if depth == 0:
                return _ended(text, document) + rest
            return _insert_after_line(document, _end(document, *node.value[-1]), rest)
        key, node = entry
        if _is_null(node) and depth + 1 < len(path):
            return _fill(document, key, node, (path[depth + 1 :], value, indent + _STEP))
    assert key is not None
    return _replace(document, key, node, value)


def remove(document: Document, path: SettingPath) -> str:
    """The text without the setting at `path`. Comments on lines of their own stay."""
    node: Node | None = document.root
    key: ScalarNode | None = None
    for name in path:
        if not isinstance(node, MappingNode) or node.flow_style:
            raise Unspliceable
        entry = _entry(node, name)
        if entry is None:
            return document.text
        key, node = entry
    if key is None or node is None:
        return document.text
    text = document.text
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip():
        raise Unspliceable
    kept = "".join(
        " " * key.start_mark.column + comment + _newline(text)
        for comment in _comments(document, key, node)
    )
    return text[:start] + kept + text[_line_end(text, _end(document, key, node)) :]


def _replace(document: Document, key: ScalarNode, node: Node, value: Value) -> str:
    text = document.text
    if node.anchor or isinstance(node, MappingNode):
        raise Unspliceable
    written = _written(value)
    if _is_block(node):
        kept = "".join(
            _newline(text) + " " * (key.start_mark.column + 2) + comment
            for comment in _comments(document, key, node)
        )
        return f"{text[: _colon(text, key)]} {written}{kept}{text[_end(document, key, node) :]}"
    if _is_unwritten(node):
        colon = _colon(text, key)
        return f"{text[:colon]} {written}{text[colon:]}"
    _refuse_alias(key, node)
    return text[: node.start_mark.index] + written + text[node.end_mark.index :]


def _fill(
    document: Document,
    key: ScalarNode | None,
    node: Node,
    addition: tuple[SettingPath, Value, str],
) -> str:
    """Put the first setting into a section that has none: `gateway:`, `gateway: {}`."""
    text = document.text
    if node.anchor or key is None:
        raise Unspliceable
    path, value, indent = addition
    rest = _lines(path, value, indent=indent, newline=_newline(text))
    if _is_unwritten(node):
        return _insert_after_line(document, _colon(text, key), rest)
    _refuse_alias(key, node)
    colon = _colon(text, key)
    emptied = text[:colon] + text[node.end_mark.index :]
    return _insert_after_line(document, colon, rest, text=emptied)


def _insert_after_line(
    document: Document, index: int, addition: str, *, text: str | None = None
) -> str:
    text = document.text if text is None else text
    end = _line_end(text, index)
    before = text[:end]
    if before and not before.endswith("\n"):
        before += _newline(text)
    return before + addition + text[end:]


def _entry(node: MappingNode, name: str) -> tuple[ScalarNode, Node] | None:
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.value == name:
            return key, value
    return None


def _end(document: Document, key: Node, node: Node) -> int:
    """Where the text of an entry ends. A block's own end mark lies behind what follows it."""
    if isinstance(node, ScalarNode) and _is_unwritten(node):
        return _colon(document.text, key)
    _refuse_alias(key, node)
    if isinstance(node, ScalarNode) and _is_block(node):
        raise Unspliceable
    if isinstance(node, MappingNode) and not node.flow_style:
        return _end(document, *node.value[-1])
    if isinstance(node, SequenceNode) and not node.flow_style:
        last = node.value[-1]
        _refuse_alias(key, last)
        if not isinstance(last, ScalarNode) or _is_unwritten(last) or _is_block(last):
            raise Unspliceable
        return int(last.end_mark.index)
    return int(node.end_mark.index)


def _comments(document: Document, key: Node, node: Node) -> Iterator[str]:
    """Comments inside a block that goes away, but for those behind its values."""
    if not isinstance(node, MappingNode | SequenceNode) or node.flow_style:
        return
    index = key.end_mark.index
    for leaf in _leaves(node):
        _refuse_alias(key, leaf)
        for line in document.text[index : leaf.start_mark.index].splitlines():
            if "#" in line:
                yield line[line.index("#") :]
        index = max(index, leaf.end_mark.index)


def _leaves(node: Node) -> Iterator[Node]:
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _leaves(item)
    else:
        for key, value in node.value:
            yield key
            yield from _leaves(value)


def _is_block(node: Node) -> bool:
    if isinstance(node, ScalarNode):
        return node.style in ("|", ">")
    return isinstance(node, MappingNode | SequenceNode) and not node.flow_style


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _is_unwritten(node: Node) -> bool:
    return isinstance(node, ScalarNode) and not node.style and node.value == ""


def _is_empty_flow(node: Node) -> bool:
    return bool(isinstance(node, MappingNode) and node.flow_style and not node.value)


def _refuse_alias(key: Node, node: Node) -> None:
    """A node that begins before its own name stands elsewhere: this is an alias of it."""
    if node.start_mark.index < key.end_mark.index:
        raise Unspliceable


def _colon(text: str, key: Node) -> int:
    """Just behind the colon of an entry."""
    found = re.compile(r"[ \t]*:").match(text, key.end_mark.index)
    if found is None:
        raise Unspliceable
    return found.end()


def _line_end(text: str, index: int) -> int:
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def _ended(text: str, document: Document) -> str:
    return text if not text or text.endswith("\n") else text + _newline(document.text)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _lines(path: Sequence[str], value: Value, *, indent: str, newline: str) -> str:
    lines = [f"{indent}{_STEP * depth}{_written(name)}:" for depth, name in enumerate(path)]
    return newline.join(lines) + f" {_written(value)}{newline}"


def _written(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_written(item) for item in value)}]"
    if isinstance(value, dict):
        inside = ", ".join(f"{_written(name)}: {_written(item)}" for name, item in value.items())
        return f"{{{inside}}}"
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
