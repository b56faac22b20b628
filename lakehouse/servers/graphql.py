"""Questions to Dagster's web interface on this machine, over GraphQL, as its pages ask them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from lakehouse.errors import DaemonError


def ask(url: str, query: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The data of an answer.

    Args:
        url: of the web interface, without a path.
        query: or a mutation.
        variables: its parameters.

    Raises:
        OSError: nothing listens there.
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
        with direct.open(request, timeout=60) as answer:
            said = json.load(answer)
    except urllib.error.HTTPError as error:
        said = _json_or_nothing(error.read())
        if "errors" not in said:
            why = "no Dagster, or one that is about to start or to end"
            raise DaemonError(f"What answers at {url} is {why} (HTTP {error.code}).") from error
    except ValueError as error:
        raise DaemonError(f"What answers at {url} is no Dagster.") from error
    if said.get("errors"):
        raise DaemonError(f"Dagster refuses: {said['errors'][0].get('message', said['errors'][0])}")
    data: dict[str, Any] = said["data"]
    return data


def _json_or_nothing(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
