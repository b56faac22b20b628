"""Questions to Dagster's web interface on this machine, over GraphQL, as its pages ask them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from lakehouse.errors import DaemonError

SECONDS = 60.0  # for each part of an answer
_NONE = "no Dagster, or one that is about to start or to end"


def ask(url: str, query: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The data of an answer.

    Args:
        url: of the web interface, without a path.
        query: or a mutation.
        variables: its parameters.

    Raises:
        OSError: nothing listens there, or it does not answer in time (TimeoutError).
        DaemonError: what answers is no Dagster, or it refuses.
    """
    request = urllib.request.Request(  # noqa: S310  # loopback
        f"{url}/graphql",
        json.dumps({"query": query, "variables": dict(variables or {})}).encode(),
        {"content-type": "application/json"},
    )
    # urllib is enough for one request to this machine; it would ask a proxy of the environment all the same.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=SECONDS) as answer:
            said = _json_or_nothing(answer.read())
    except urllib.error.HTTPError as error:
        said = _json_or_nothing(error.read())
        if "errors" not in said:
            raise DaemonError(f"What answers at {url} is {_NONE} (HTTP {error.code}).") from error
    except HTTPException as error:  # it speaks no HTTP, or ended in the middle of its answer
        raise DaemonError(f"What answers at {url} is {_NONE}.") from error
    if errors := said.get("errors"):
        first = errors[0] if isinstance(errors, list) else errors
        raise DaemonError(_refused(str(first.get("message", first) if isinstance(first, dict) else first)))
    data = said.get("data")
    if not isinstance(data, dict):
        raise DaemonError(f"What answers at {url} is {_NONE}.")
    return data


def _refused(told: str) -> str:
    """Why Dagster does not answer a question; a server that keeps its state may be down, or just started again."""
    _, silent, why = told.partition("(psycopg2.OperationalError) ")
    if not silent:
        return f"Dagster refuses: {told}"
    return (  # the rest is the statement, and advice for who writes such programs
        f"Dagster's database does not answer: {why.partition(chr(10))[0]}. Once it answers, see by "
        "`lakehouse backfills list` what is on, and run the same command again."
    )


def _json_or_nothing(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
