"""A page as a program reads it: a tree of elements, and tables as rows of texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}
# What may stay open, as the rules of HTML have it, and which of these a new element ends.
ENDS = {"td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"}}


@dataclass
class Element:
    """One element with its attributes, its children and its own text."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    def all(self, *tags: str) -> Iterator[Element]:
        """The elements inside of these names, in the order of the page."""
        for each in self.children:
            if isinstance(each, Element):
                if each.tag in tags:
                    yield each
                yield from each.all(*tags)

    def one(self, tag: str, **wanted: str) -> Element:
        """The only such element with these attributes (`_` stands for `-`)."""
        named = {name.replace("_", "-"): value for name, value in wanted.items()}
        (found,) = [each for each in self.all(tag) if named.items() <= each.attributes.items()]
        return found

    @property
    def text(self) -> str:
        """All text inside, with single spaces."""
        parts = [each if isinstance(each, str) else each.text for each in self.children]
        return " ".join(" ".join(parts).split())

    def rows(self) -> list[list[str]]:
        """The cells of a table's rows, as text."""
        return [[cell.text for cell in row.all("td", "th")] for row in self.all("tr")]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("page")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        while self.open[-1].tag in ENDS.get(tag, ()):
            self.open.pop()
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        while self.open[-1].tag != tag and self.open[-1].tag in {"td", "th", "tr"}:
            self.open.pop()
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(page: str) -> Element:
    """The tree of a page; an element that is not ended in its place is an error."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1, f"never ended: {[each.tag for each in reader.open[1:]]}"
    return reader.root
