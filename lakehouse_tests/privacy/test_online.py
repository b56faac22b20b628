"""A person leaves the features online: their rows go, and the files of Redis are searched as any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakehouse.contracts import Privacy
from lakehouse.errors import OnlineDownError
from lakehouse.online.server import place_of, server_of, start
from lakehouse.online.sets import FeatureSet
from lakehouse.online.store import OnlineStore, opened
from lakehouse.privacy.online import forget_online
from lakehouse.privacy.scan import clean_rest, scan
from lakehouse.settings import Settings
from lakehouse.sources.people import Person
from lakehouse_tests.fixtures.profiles import TABLE, profiles
from lakehouse_tests.fixtures.redis import RedisServer, is_here

CANARY, OTHER = "17841", "17842"
TABLES = {TABLE: profiles()}
FEATURES = FeatureSet.of(TABLES[TABLE])


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Of a lakehouse with a Redis of its own, which holds two people, one in an older version, too."""
    if not is_here():
        pytest.skip("no Redis server here: make redis")
    made = Settings(root=tmp_path)
    put(start(made).url)
    yield made
    place_of(made).end()


def put(url: str) -> None:
    older = replace(FEATURES, code_version="of long ago")
    gone = replace(FEATURES, table="gold.gone")
    with opened(url) as store:
        for features, user in ((FEATURES, CANARY), (FEATURES, OTHER), (older, CANARY), (gone, CANARY)):
            row = (features.redis_key([user]), store.now() + 10**8, features.pack(1, 1, [1, 1, None]))
            store.put(features, [row], 1)


def rows(url: str) -> list[str]:
    with opened(url) as store:
        return sorted(store.keys("*"))


@pytest.mark.parametrize("is_on", [True, False])
def test_no_file_names_the_person_any_more(settings: Settings, is_on: bool) -> None:
    """Without it, the person would go on being served, or come back when Redis starts again."""
    person = Person(CANARY)
    if not is_on:
        place_of(settings).end()
    hits = scan(settings.root, TABLES, person)[1]
    assert [each.partition("/")[0] for each in hits] == ["redis"], "the search sees what Redis keeps"
    assert clean_rest(settings.root, TABLES, person) == 0, "its files are its own"
    assert forget_online(settings, TABLES, person) == 3
    assert scan(settings.root, TABLES, person)[1] == []
    assert (server_of(settings) is not None) == is_on
    place_of(settings).end()
    assert rows(start(settings).url) == [FEATURES.redis_key([OTHER])]
    assert forget_online(settings, TABLES, person) == 0


def test_rows_that_are_about_others_stay(settings: Settings) -> None:
    """Without it, a product of the person's number would go with them."""
    product = replace(FEATURES, entity="product", key={"product": "string"})
    with_products = {TABLE: profiles(privacy=Privacy())}
    found = server_of(settings)
    assert found is not None
    with opened(found.url) as store:
        store.put(product, [(product.redis_key([CANARY]), store.now() + 10**8, product.pack(1, 1, [1, 1, None]))], 1)
    assert forget_online(settings, with_products, Person(CANARY)) == 1, "that of a table nobody knows any more"


def test_a_redis_elsewhere_is_cleaned_too_or_the_erasure_fails(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, an erasure would be done while the person is still served."""
    with redis_server.empty():
        put(redis_server.url)
        elsewhere = Settings(root=tmp_path, redis_url=SecretStr(redis_server.url))
        assert forget_online(elsewhere, TABLES, Person(CANARY)) == 3
        assert rows(redis_server.url) == [FEATURES.redis_key([OTHER])]
    monkeypatch.setattr(OnlineStore.__init__, "__defaults__", ((),))
    with pytest.raises(OnlineDownError):
        forget_online(Settings(root=tmp_path, redis_url=SecretStr("redis://127.0.0.1:1/0")), TABLES, Person(CANARY))


def test_a_lakehouse_without_redis_has_nothing_to_forget(tmp_path: Path) -> None:
    assert forget_online(Settings(root=tmp_path), TABLES, Person(CANARY)) == 0
    assert not (tmp_path / "redis").exists()


@pytest.mark.parametrize(("user", "other"), [("ann", "ann b"), ("a", "a b"), ("bo", "ann,bo"), ("user", "9")])
def test_a_word_of_another_id_is_another_person(settings: Settings, user: str, other: str) -> None:
    """Without it, an erasure would never be done: the other's row stays, and its key was taken for the person's."""
    server = server_of(settings)
    assert server is not None
    with opened(server.url) as store:
        keys = [FEATURES.redis_key([each]) for each in (user, other)]
        # Among its bytes 97 and 98, which are letters: that of the version, and of the time.
        value = FEATURES.pack(97 << 24, 98 << 16, [1, 1, None])
        store.put(FEATURES, [(key, store.now() + 10**8, value) for key in keys], 1)
    person = Person(user)
    assert any(each.startswith("redis/data") for each in scan(settings.root, TABLES, person)[1])
    assert forget_online(settings, TABLES, person) == 1
    clean_rest(settings.root, TABLES, person)  # an article in a log
    assert scan(settings.root, TABLES, person)[1] == []
    assert keys[1] in rows(server.url)
