"""What of a SQLite file is no living cell: there deleted rows stay, until it is written anew.

The form of the file is SQLite's own and does not change: https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

from collections.abc import Iterator

_SMALLEST = 512  # bytes of a page
_HEADER = 100  # bytes of the file's own, at the beginning of its first page
_INTERIOR, _LEAVES = (2, 5), (10, 13)  # kinds of pages of a tree, by their first byte


def not_alive(content: bytes) -> Iterator[bytes]:
    """The parts of a file in which no living cell begins: free pages, free room within pages, and overflow pages.

    Overflow pages are living, but for the end of the last one, where an older text may be.
    """
    size = _number(content, 16, 2)
    size = 65_536 if size == 1 else size
    if size < _SMALLEST or len(content) % size:  # cut short, or no file of SQLite's: all of it is looked at
        yield content
        return
    free = _free_pages(content, size)
    for number, start in enumerate(range(0, len(content), size), 1):
        page = content[start : start + size]
        head = _HEADER if number == 1 else 0
        if number in free or page[head] not in (*_INTERIOR, *_LEAVES):
            yield page
        else:
            yield from _free_room(page, head)


def _free_pages(content: bytes, size: int) -> set[int]:
    """The numbers of pages that belong to no table: they are listed in trunks, of which each names the next."""
    found: set[int] = set()
    trunk = _number(content, 32, 4)
    while trunk and trunk not in found and trunk * size <= len(content):
        start = (trunk - 1) * size
        many = min(_number(content, start + 4, 4), size // 4 - 2)
        found |= {trunk, *(_number(content, start + 8 + 4 * n, 4) for n in range(many))}
        trunk = _number(content, start, 4)
    return found


def _free_room(page: bytes, head: int) -> Iterator[bytes]:
    """What is free in a page of a tree: between the cells' addresses and the cells, and where a cell was."""
    addresses = head + (12 if page[head] in _INTERIOR else 8)
    cells = _number(page, head + 5, 2) or 65_536
    yield page[addresses + 2 * _number(page, head + 3, 2) : cells]
    block, before = _number(page, head + 1, 2), 0
    while block > before:  # in order, each names the next
        yield page[block : block + max(4, _number(page, block + 2, 2))]
        block, before = _number(page, block, 2), block


def _number(content: bytes, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size], "big")
