"""A person taken out of the features online: their rows, and the files in which Redis keeps them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from lakehouse import store
from lakehouse.contracts import Table
from lakehouse.delta.layout import table_path
from lakehouse.delta.opening import open_snapshot
from lakehouse.errors import OnlineError
from lakehouse.online.address import redis_url
from lakehouse.online.server import Server, place_of, server_of, start
from lakehouse.online.sets import HEAD, FeatureSet, feature_sets, parsed_key
from lakehouse.online.store import EVERYTHING, OnlineStore, opened
from lakehouse.settings import Settings
from lakehouse.sources.people import Person

_STRING = re.compile(rb"(?:[*#][^\r\n]*\r\n)*\$(\d+)\r\n")  # how the next text in a file of Redis begins
_SECONDS = 30.0  # that Redis has to remove files it has replaced


def forget_online(settings: Settings, tables: Mapping[str, Table], person: Person) -> int:
    """Remove the rows of a person, of every version; returns how many there were.

    The Redis of the lakehouse itself writes its files anew, so that none names the person; one that is off is started
    for that. Of another Redis, files and copies are its owner's.

    Args:
        settings: where the lakehouse and its Redis are.
        tables: all by name; Delta holds them without the person already.
        person: who.

    Raises:
        OnlineDownError: Redis does not answer: the erasure is not done.
        OnlineError: Redis could not write its files anew.
        EngineError: the lakehouse's own Redis does not start.
    """
    own = server_of(settings)
    was_off = own is None and any(True for _ in store.walk(place_of(settings).folder / "data", gone_ok=True))
    if was_off:
        own = start(settings)
    try:
        found = 0
        if own is not None:
            found += _out_of(own.url, settings, tables, person)
            with opened(own.url) as redis:
                redis.rewrite_files()
            _wait_for_removal(own)
        if settings.redis_url is not None and (own is None or redis_url(settings) != own.url):
            found += _out_of(redis_url(settings), settings, tables, person)
        return found
    finally:
        if was_off:
            place_of(settings).end()


def of_others(tables: Mapping[str, Table], person: Person) -> Callable[[bytes], bytes]:
    """What leaves the keys of others' rows out of a file of Redis: `user:ann%20b:…` is not about `ann`.

    Args:
        tables: all by name.
        person: who.
    """
    people, sets = _people(tables), feature_sets(tables)

    def left(content: bytes) -> bytes:
        parts, at, is_value = [], 0, False
        while found := _STRING.match(content, at):  # any other file has none: all of it is left
            text = content[found.end() : found.end() + int(found[1])]
            at = found.end() + len(text) + len(b"\r\n")
            key = parsed_key(text.decode("utf-8", "replace"))
            if is_value and text[HEAD.size : HEAD.size + 1] == b"[":
                text = text[HEAD.size :]  # before it are numbers, whose bytes may be letters
            is_value = key is not None
            if key is None or _is_theirs(key, sets, people, person):
                parts.append(text)
        return b"\n".join([*parts, content[at:]])

    return left


def _people(tables: Mapping[str, Table]) -> dict[str, set[str]]:
    return {each.id: set(each.privacy.person) for each in tables.values()}


def _out_of(url: str, settings: Settings, tables: Mapping[str, Table], person: Person) -> int:
    people, sets = _people(tables), feature_sets(tables)
    with opened(url) as redis:
        for name, features in sets.items():  # a load that has read the person is not to bring them back
            snapshot = open_snapshot(table_path(settings.root, name))
            if snapshot.metadata is not None:
                redis.begin(features, snapshot.version, EVERYTHING, str(snapshot.table_id))
        return redis.remove(_named(redis, sets, people, person))


def _named(
    redis: OnlineStore, sets: Mapping[str, FeatureSet], people: Mapping[str, set[str]], person: Person
) -> list[str]:
    """The keys of rows that are the person's, or name them."""
    found = []
    for chunk in redis.key_chunks("*"):
        rows = [(key, of) for key in chunk if (of := parsed_key(key)) is not None]
        found += [
            key
            for (key, of), value in zip(rows, redis.values([key for key, _ in rows]), strict=True)
            if _is_theirs(of, sets, people, person) or (value is not None and person.in_bytes(value[HEAD.size :]))
        ]
    return found


def _is_theirs(
    key: tuple[str, tuple[str, ...]], sets: Mapping[str, FeatureSet], people: Mapping[str, set[str]], person: Person
) -> bool:
    """Whether the key of a row, as it is parsed, says that it is the person's, or names them."""
    table, parts = key
    features = sets.get(table)
    # Of a table that is no more, any part may be a person.
    known = features is not None and len(features.key) == len(parts)
    columns = tuple(features.key) if features is not None and known else ("",) * len(parts)
    own = (not known or name in people[table] for name in columns)
    return any(
        person.in_id(part) if is_person else person.in_text(part, strict=True)
        for part, is_person in zip(parts, own, strict=True)
    )


def _wait_for_removal(server: Server) -> None:
    """Until no file is left that Redis has replaced: it removes them a moment after it says that it is done."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        files = [file for folder in store.listed(server.data_path) for file in store.listed(folder)]
        listed = next((store.read_text(file) for file in files if file.suffix == ".manifest"), "")
        live = {line.split()[1] for line in listed.splitlines() if line.startswith("file ") and " type h" not in line}
        if live and {file.name for file in files if file.suffix != ".manifest"} == live:
            return
        time.sleep(0.02)
    raise OnlineError(f"Redis has not removed files that it replaced: see {server.log}")
