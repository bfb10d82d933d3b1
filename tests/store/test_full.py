"""The full model into a folder: interrupted and resumed, or saved from memory."""

import doublefeature as df
from doublefeature.config import Schedule
from doublefeature.posterior.store import draws_digest
from doublefeature.studies.recovery import Design, simulate

SCHEDULE = Schedule(sweeps=24, warmup=8, thin=2, chains=2, threads=1)


def ratings():
    return simulate(Design(users=30, items=20, tau=0.5), seed=3)[0].split(0.3, seed=1)[0]


def unfitted(sweeps: int) -> df.DoubleFeature:
    schedule = Schedule.from_dict({**SCHEDULE.to_dict(), "sweeps": sweeps})
    return df.DoubleFeature(preset="full", schedule=schedule, seed=1)


def test_a_longer_run_goes_on_where_the_shorter_one_stopped(tmp_path) -> None:
    unfitted(14).fit(ratings(), out=tmp_path / "model")
    longer = df.DoubleFeature.resume(tmp_path / "model", sweeps=24)
    whole = unfitted(24).fit(ratings())
    assert draws_digest(longer.posterior_) == draws_digest(whole.posterior_)


def test_covariates_are_kept_for_resuming(tmp_path) -> None:
    tables = {"users": {user: {"age": str(20 + user % 7)} for user in range(30)}}
    tables["items"] = {item: {"kind": "ab"[item % 2]} for item in range(20)}
    data = df.with_covariates(ratings(), **tables, user_covariates=["age"], item_covariates=["kind"])
    unfitted(14).fit(data, out=tmp_path / "model")
    longer = df.DoubleFeature.resume(tmp_path / "model", sweeps=24)
    assert longer.ratings_.covariates.item_names == ("kind: a", "kind: b")
    assert draws_digest(longer.posterior_) == draws_digest(unfitted(24).fit(data).posterior_)


def test_a_model_saved_from_memory_answers_the_same(tmp_path) -> None:
    model = unfitted(24).fit(ratings())
    model.save(tmp_path / "model")
    pairs = [(0, 0), (3, 7), ("nobody", 2)]
    assert (df.load(tmp_path / "model").predict(pairs).proba == model.predict(pairs).proba).all()
