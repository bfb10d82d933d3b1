"""The model itself: what it is, how far to trust it, and how to serve another."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException

from doublefeature.errors import DoubleFeatureError
from doublefeature.server import judging
from doublefeature.server.bodies import StrictRoute
from doublefeature.server.problems import COMMON, responses
from doublefeature.server.schemas import catalogue as out
from doublefeature.server.schemas.asked import Reload
from doublefeature.server.service import Serving

router = APIRouter(prefix="/model", tags=["model"], route_class=StrictRoute, responses=COMMON)


@router.get("")
async def model_info(service: Serving) -> out.ModelInfo:
    """Say what is being served."""
    return await service.look(lambda loaded: judging.info(loaded, service.holder.alarm))


@router.get("/card")
async def model_card(service: Serving) -> out.Card:
    """Return the model's card: what it was fitted on, how, and what it must not be used for."""
    return await service.look(judging.card)


@router.get("/diagnosis")
async def model_diagnosis(service: Serving) -> out.Diagnosis:
    """Say whether the chains agree, with their traces."""
    return await service.look(judging.diagnosis)


@router.get("/quality")
async def model_quality(service: Serving) -> out.Quality:
    """Say how good predictions of held-out ratings are, and whether probabilities come true."""
    return await service.look(judging.quality)


@router.post("/reload", responses=responses(409))
async def reload_model(service: Serving, asked: Reload) -> out.ModelInfo:
    """Serve the folder as it is now, or another beside it. One that fails its self-test is refused: the old stays."""

    def work() -> out.ModelInfo:
        path = service.holder.current.path
        try:
            loaded = service.holder.swap(path if asked.folder is None else path.parent / asked.folder)
        except DoubleFeatureError:
            raise HTTPException(409, "the new model was refused and the old one goes on: see `alarm`") from None
        return judging.info(loaded, service.holder.alarm)

    return await service.keepers.run(work)
