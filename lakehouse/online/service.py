"""Features over HTTP: a small service that asks Redis and nothing else. It knows no login: it is for loopback."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict
from pydantic import Field as Described

from lakehouse.errors import LakehouseError, OnlineError
from lakehouse.online.client import AsyncOnlineClient, Feature, Row
from lakehouse.online.sets import FeatureSet

MOST_ENTITIES = 1000  # in one question
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)
_DOWN, _BAD = 503, 422
Key = Annotated[str | int | float | bool, Described(description="Value of a key column")]


class Question(BaseModel):
    """Whose features are wanted, and which."""

    model_config = ConfigDict(extra="forbid")

    entities: list[dict[str, Key]] = Described(
        description="Each by its key columns", max_length=MOST_ENTITIES, examples=[[{"user_id": "17841"}]]
    )
    features: list[str] = Described(
        description="layer.name:column, or layer.name for all of a table",
        examples=[["gold.user_features"]],
        min_length=1,
    )
    max_age_seconds: float | None = Described(None, gt=0, le=1e9, description="What is older counts as stale")


class Served(BaseModel):
    """One feature of one entity; value is null unless the status is present."""

    status: str = Described(description="present, missing or stale")
    value: Any = Described(description="As JSON has it; decimals as text, so that none is rounded; moments as ISO 8601")
    event_time: datetime | None = Described(description="From when on the row may be used; null: there is none")
    delta_version: int | None = Described(description="Of the table at which the row was read")
    code_version: str | None = Described(description="Of the code that made the row")


class Answer(BaseModel):
    """The features of each entity, in the order of the question."""

    vectors: list[dict[str, Served]]


def service(url: str, sets: Mapping[str, FeatureSet], clock: Callable[[], float] = time.time) -> FastAPI:
    """The application.

    Args:
        url: of Redis; it may hold a password, and is shown to nobody.
        sets: what can be asked for, by table.
        clock: seconds since 1970.
    """
    at = CollectorRegistry()
    asked = Counter("lakehouse_online_requests", "Questions by outcome", ["outcome"], registry=at)
    served = Counter("lakehouse_online_features", "Features by status", ["status"], registry=at)
    seconds = Histogram("lakehouse_online_seconds", "From question to answer", buckets=_SECONDS, registry=at)
    client = AsyncOnlineClient(url, sets, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await client.close()

    app = FastAPI(title="Features online", version="1", lifespan=lifespan)

    @app.exception_handler(LakehouseError)
    async def refuse(_: Request, error: Exception) -> JSONResponse:
        down = isinstance(error, OnlineError)  # of what it is asked, Redis' troubles alone are of this kind
        asked.labels("down" if down else "refused").inc()
        return JSONResponse({"detail": str(error)}, _DOWN if down else _BAD)

    @app.post(
        "/features", response_model=Answer, responses={_DOWN: {"description": "Redis does not answer, or refuses"}}
    )
    async def features(question: Question) -> JSONResponse:
        """The features of some entities."""
        began = time.perf_counter()
        oldest = None if question.max_age_seconds is None else timedelta(seconds=question.max_age_seconds)
        vectors = await client.get_online_features(question.entities, question.features, oldest)
        told = [{name: _told(each) for name, each in vector.items()} for vector in vectors]
        for vector in told:
            for each in vector.values():
                served.labels(each["status"]).inc()
        asked.labels("answered").inc()
        seconds.observe(time.perf_counter() - began)
        return JSONResponse({"vectors": told})

    @app.get("/health", responses={_DOWN: {"description": "Redis does not answer, or refuses"}})
    async def health() -> JSONResponse:
        """Whether features can be served."""
        ready = await client.answers()
        return JSONResponse({"redis": ready, "tables": sorted(sets)}, 200 if ready else _DOWN)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(generate_latest(at), media_type=CONTENT_TYPE_LATEST)

    return app


def _told(feature: Feature) -> dict[str, Any]:
    row: Row | None = feature.row
    return {
        "status": feature.status,
        "value": _plain(feature.value),
        "event_time": row and row.event_time.isoformat(),
        "delta_version": row and row.delta_version,
        "code_version": row and row.code_version,
    }


def _plain(value: Any) -> Any:
    """As JSON has it, which knows no decimals, no moments, and no number that is none."""
    if isinstance(value, Decimal):
        return f"{value:f}"  # not 0E-18
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value.isoformat() if hasattr(value, "isoformat") else value
