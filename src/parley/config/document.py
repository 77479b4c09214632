"""`config.yaml` as read: plain values, and the line and column of each.

Only what a settings file needs of YAML is taken: mappings, lists and plain scalars. No tag builds
an object, and what aliases unfold to is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from parley.config.errors import ConfigError, Fault, shown
from parley.config.files import read_text
from parley.config.redact import Redactor

__all__ = ["Document", "Mark", "SettingPath", "Value", "parse_document", "read_document"]

Value: TypeAlias = bool | int | float | str | list["Value"] | dict[str, "Value"] | None
SettingPath: TypeAlias = tuple[str, ...]

_MOST_VALUES: Final = 20_000
_YAML: Final = "tag:yaml.org,2002:"
_TEXT: Final = {f"{_YAML}str", f"{_YAML}timestamp"}
_BUILT: Final = {f"{_YAML}null", f"{_YAML}bool", f"{_YAML}int", f"{_YAML}float"}


@dataclass(frozen=True, slots=True)
class Mark:
    """Where something stands in the file, counted from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Document:
    """A settings file: its text, what it says, and where it says it."""

    file: Path
    text: str
    root: MappingNode | None = None
    values: dict[str, Value] = field(default_factory=dict)
    marks: dict[SettingPath, Mark] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def mark(self, path: Sequence[str]) -> Mark | None:
        """Where a setting is written; if it is not, then where what holds it is."""
        for length in range(len(path), 0, -1):
            found = self.marks.get(tuple(path[:length]))
            if found is not None:
                return found
        return None

    def fault(self, sentence: str, path: Sequence[str], *, mark: Mark | None = None) -> Fault:
        """A fault of the setting at `path`, with its place in the file before the sentence."""
        mark = mark or self.mark(path)
        where = shown(self.file)
        if mark is None:
            return Fault(f"{where}: {sentence}", ".".join(path))
        where = f"{where}, line {mark.line}, column {mark.column}"
        return Fault(f"{where}: {sentence}", ".".join(path), mark.line, mark.column)


def read_document(file: Path) -> Document:
    """Read a settings file; one that is missing is an empty one."""
    return parse_document(read_text(file) or "", file)


def parse_document(text: str, file: Path) -> Document:
    """Understand the text of a settings file. Raises `ConfigError` when it is not YAML."""
    document = Document(file, text)
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False  # allowed in YAML, and a warning is no sentence
    try:
        root: Node | None = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = (error.problem or error.context or "it cannot be read").split()
        problem = Redactor().text(" ".join(words).removeprefix("but "))
        raise ConfigError(_broken(document, problem, mark)) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        raise ConfigError(
            document.fault("a character here is not allowed in YAML.", (), mark=Mark(line, column))
        ) from error
    except RecursionError as error:
        raise ConfigError(document.fault("it is nested too deeply.", ())) from error
    except (YAMLError, ValueError, TypeError, AttributeError, LookupError, AssertionError) as error:
        # The parser lets its own slips escape on text that is not YAML at all.
        raise ConfigError(document.fault("this is not YAML.", ())) from error
    if root is None or _is_null(root):
        return document
    if not isinstance(root, MappingNode):
        raise ConfigError(
            document.fault(
                f"settings such as `gateway:` are wanted here, not {_kind(root)}.",
                (),
                mark=_mark(root.start_mark),
            )
        )
    document.root = root
    try:
        document.values = _Reader(document, yaml).mapping(root, ())
    except RecursionError as error:
        raise ConfigError(document.fault("it is nested too deeply.", ())) from error
    return document


class _Reader:
    """Turns the nodes of one document into values, noting where each stands."""

    def __init__(self, document: Document, yaml: YAML) -> None:
        self._document = document
        self._yaml = yaml
        self._open: set[int] = set()
        self._count = 0

    def mapping(self, node: MappingNode, path: SettingPath) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for key, item in node.value:
            mark = _mark(key.start_mark)
            if not isinstance(key, ScalarNode):
                self._fault("a name is wanted before the colon.", path, mark)
                continue
            name = str(key.value)
            here = (*path, name)
            if key.tag == f"{_YAML}merge":
                self._fault("`<<` is not supported; write the settings out.", path, mark)
                continue
            if name in values:
                first = self._document.marks[here].line
                self._fault(
                    f"`{'.'.join(here)}` is already set in line {first}; remove one of the two.",
                    here,
                    mark,
                )
                continue
            self._document.marks[here] = mark
            values[name] = self._value(item, here)
        return values

    def _value(self, node: Node, path: SettingPath) -> Value:
        self._count += 1
        if self._count > _MOST_VALUES:
            raise ConfigError(
                self._document.fault(f"it holds more than {_MOST_VALUES} values.", ())
            )
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            raise ConfigError(
                self._document.fault("an alias here stands inside what it names.", path)
            )
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode) and node.tag == f"{_YAML}map":
                return self.mapping(node, path)
            if isinstance(node, SequenceNode) and node.tag == f"{_YAML}seq":
                return [
                    self._value(item, (*path, str(index))) for index, item in enumerate(node.value)
                ]
        finally:
            self._open.discard(id(node))
        self._refuse_tag(node, path)
        return None

    def _scalar(self, node: ScalarNode, path: SettingPath) -> Value:
        if node.tag in _TEXT:
            return str(node.value)
        if node.tag not in _BUILT:
            self._refuse_tag(node, path)
            return None
        try:
            built = self._yaml.constructor.construct_object(node)
        except (YAMLError, ValueError, LookupError):
            self._fault("this is not a number.", path, _mark(node.start_mark))
            return None
        return built if built is None or isinstance(built, bool | int | float) else str(node.value)

    def _refuse_tag(self, node: Node, path: SettingPath) -> None:
        self._fault(
            f"the tag `{node.tag}` is not allowed; write a plain value.",
            path,
            _mark(node.start_mark),
        )

    def _fault(self, sentence: str, path: SettingPath, mark: Mark) -> None:
        self._document.faults.append(self._document.fault(sentence, path, mark=mark))


def _broken(document: Document, problem: str, mark: StringMark | None) -> Fault:
    place = None if mark is None else _mark(mark)
    return document.fault(f"this is not YAML: {problem.rstrip('.')}.", (), mark=place)


def _mark(mark: StringMark) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == f"{_YAML}null"


def _kind(node: Node) -> str:
    return "a list" if isinstance(node, SequenceNode) else "a single value"
