"""The application: routes, page and guards put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

from doublefeature._version import __version__
from doublefeature.errors import MissingExtraError

try:
    from fastapi import APIRouter, Depends, FastAPI
except ImportError:
    raise MissingExtraError("serving a model", "server") from None
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from doublefeature.server import problems
from doublefeature.server.guards import Guards
from doublefeature.server.limits import Doorkeeper
from doublefeature.server.metrics import Metrics
from doublefeature.server.models import Holder
from doublefeature.server.routes import asking, catalogue, health, model, rating
from doublefeature.server.service import Service
from doublefeature.server.settings import API, DESCRIPTION, Settings, default_database
from doublefeature.server.storage import Storage
from doublefeature.server.workers import Workers

_WRITERS, _WRITE_QUEUE, _WRITE_SECONDS = 4, 64, 600.0
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_ABOUT = """
Recommendations that can say why and how sure. Every prediction is a probability for each level, averaged over the
draws of a posterior; answers are the same bytes for the same model, ratings and question, and name the model's version.

Ids in addresses are percent-encoded, slashes included. Unknown ids in addresses give 404; ids or levels in bodies that
the loaded model does not have give 409. Failures are `{"error": …, "detail": …}`.
"""


def open_service(path: Path, settings: Settings) -> Service:
    """Load a model, try it out and open the database."""
    holder = Holder(path, settings.table_bytes)
    return Service(
        settings=settings,
        holder=holder,
        storage=Storage(settings.database or default_database(path)),
        workers=Workers("ask", settings.workers, settings.queue, settings.work_seconds),
        keepers=Workers("keep", _WRITERS, _WRITE_QUEUE, _WRITE_SECONDS),
        metrics=Metrics(),
    )


def build_app(service: Service) -> FastAPI:
    """Return the application without its guards."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="doublefeature",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url=DESCRIPTION,
        redirect_slashes=False,
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    app.state.service = service
    door = [Depends(Doorkeeper(service.settings))]
    api = APIRouter(prefix=API, dependencies=door)
    for topic in (asking, rating, catalogue, model):
        api.include_router(topic.router)
    app.include_router(api)
    app.include_router(health.router)
    app.include_router(health.numbers, dependencies=door)
    app.routes.extend(_page())
    problems.install(app)
    return app


def _page() -> list[Route]:
    """Return a route for every file of the page: nothing else can be asked for."""
    folder = resources.files("doublefeature.server") / "page"
    return [
        _file_route(file.name, file.read_bytes()) for file in folder.iterdir() if file.name.rpartition(".")[2] in _KINDS
    ]


def _file_route(name: str, content: bytes) -> Route:
    kind = _KINDS[name.rpartition(".")[2]]

    def send(_: Request) -> Response:
        return Response(content, media_type=kind)

    return Route("/" if name == "index.html" else f"/{name}", send, methods=["GET"], include_in_schema=False)


def guarded(service: Service) -> ASGIApp:
    """Return the application as it is served."""
    return Guards(build_app(service), service.settings, service.metrics)
