"""For those who run the service: is it alive, is it ready, what has it done."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from doublefeature.errors import EnvironmentProblem
from doublefeature.server.metrics import Gauge
from doublefeature.server.problems import COMMON, responses
from doublefeature.server.schemas.catalogue import Health
from doublefeature.server.service import Service, Serving

router = APIRouter(prefix="/health", tags=["health"], responses=responses(421, 503))
numbers = APIRouter(tags=["health"], responses=COMMON)

_REFUSED = "a new model was refused and the old one goes on; GET /api/v1/model says why"


@router.get("/live")
async def live() -> Health:
    """Say that the process runs."""
    return Health(status="live", model=None)


@router.get("/ready", responses={503: {"model": Health}})
async def ready(service: Serving, response: Response) -> Health:
    """Say whether a model has passed its self-test and the database answers."""
    try:
        await service.check_database()
    except EnvironmentProblem:
        response.status_code = 503
        return Health(status="database does not answer", model=service.holder.current.version)
    alarm = None if service.holder.alarm is None else _REFUSED
    return Health(status="ready", model=service.holder.current.version, alarm=alarm)


@numbers.get("/metrics", response_model=None, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: Serving) -> Response:
    """Return counters for Prometheus."""
    return PlainTextResponse(service.metrics.text(_gauges(service)))


def _gauges(service: Service) -> list[Gauge]:
    holder, loaded = service.holder, service.holder.current
    return [
        ("model_info", "Version of the model served.", {"version": loaded.version}, 1),
        ("model_draws", "Draws that answers average over.", {}, len(loaded.model.posterior_)),
        ("model_swaps", "Models swapped in since the start.", {}, holder.swaps),
        ("model_refused", "1 while the last new model stands refused.", {}, int(holder.alarm is not None)),
        ("table_filled", "Share of known users whose predictions are in memory.", {}, loaded.warm),
        ("folds_kept", "People folded in and kept.", {}, len(loaded.folds)),
        ("work_pending", "Requests being worked on or waiting.", {}, service.workers.pending),
        ("work_refused", "Requests refused because too many waited.", {}, service.workers.refused),
    ]
