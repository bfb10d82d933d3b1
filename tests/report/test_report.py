import copy
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import doublefeature as df
from doublefeature.errors import EnvironmentProblem, NotFittedError, SettingsError
from doublefeature.posterior.prediction import level_values
from doublefeature.report import build_report, write_report
from doublefeature.report.markup import VOID, decimal, percent, signed
from doublefeature.report.material import Material
from doublefeature.studies.recovery import Design, simulate

SCHEDULE = df.Schedule(sweeps=40, warmup=20, thin=2, chains=2, threads=1)
NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</style><svg onload=alert(3)>",
    "Rock & Roll 'n' \"Soul\"",
    "javascript:alert(4)",
    "\u202egnihtemos \x00\x1b",
    "long " * 400,
)
SECTIONS = ["data", "quality", "chains", "blocks", "features", "top", "users", "trust", "settings"]


def fit(ratings, *, holdout=0.2, schedule=SCHEDULE, items=None, priors=None):
    return df.DoubleFeature(preset="paper", schedule=schedule, priors=priors, seed=1).fit(
        ratings, holdout=holdout, items=items
    )


def relabelled(ratings, *, levels, code=lambda levels: levels, users=None, items=None, keep=None):
    columns = ratings.triples()
    if keep is not None:
        columns = tuple(column[keep(columns)] for column in columns)
    return df.Ratings.from_codes(
        columns[0],
        columns[1],
        code(columns[2]).astype(np.uint8),
        users=ratings.users if users is None else users,
        items=ratings.items if items is None else items,
        levels=levels,
    )


@pytest.fixture(scope="module")
def ratings():
    return simulate(Design(users=30, items=20, tau=0.5), seed=3)[0]


@pytest.fixture(scope="module")
def model(ratings):
    ids = [*NASTY, *(f"item {k}" for k in range(len(NASTY), 20))]
    named = relabelled(ratings, levels="1..5", users=[f"<b>user {k}</b>" for k in range(30)], items=ids)
    table = {item: {"title": item, "genre": f"<i>{k % 2}</i>|drama"} for k, item in enumerate(ids[:15])}
    return fit(named, items=table)


@pytest.fixture(scope="module")
def page(model):
    return build_report(model)


class Reader(HTMLParser):
    """Reads a page strictly: what is opened must be closed, in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.problems, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        self.problems += [f"<{name}> is never closed" for name, _ in self.open]

    def handle_starttag(self, name, attributes):
        if len(dict(attributes)) < len(attributes):
            self.problems.append(f"<{name}> has an attribute twice")
        self.elements.append((name, dict(attributes), [at for at, _ in self.open]))
        if name not in VOID:
            self.open.append((name, dict(attributes)))

    def handle_endtag(self, name):
        if not self.open or self.open[-1][0] != name:
            self.problems.append(f"</{name}> closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        self.texts.append((data, [at for at, _ in self.open]))

    def text(self):
        return " ".join(" ".join(data for data, inside in self.texts if "style" not in inside).split())

    def named(self, *names):
        return [attributes for name, attributes, _ in self.elements if name in names]


def complaints(text):
    """Return everything that is wrong with a page."""
    page = Reader(text)
    found = list(page.problems)
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    found += [f"id {name} comes twice" for name in {name for name in ids if ids.count(name) > 1}]
    for name, attributes, inside in page.elements:
        found += [f"<{name}> has {key}" for key in attributes if key.startswith("on") or key == "style"]
        found += [
            f"<{name}> points to {attributes[key]}"
            for key in ("src", "href", "xlink:href", "action", "srcset")
            if key in attributes and not re.match(r"#|data:image/png;base64,", attributes[key])
        ]
        if attributes.get("href", "#main")[1:] not in ids:
            found.append(f"{attributes['href']} leads nowhere")
        found += [
            f"label {label} is missing" for label in attributes.get("aria-labelledby", "").split() if label not in ids
        ]
        if (
            name == "svg"
            and "svg" not in inside
            and not (attributes.get("role") == "img" or "aria-hidden" in attributes)
        ):
            found.append("a chart without a role")
    found += [
        f"<{name}> is not allowed" for name, _, _ in page.elements if name in {"script", "link", "iframe", "object"}
    ]
    found += [f"the page holds {part}" for part in ("http://", "https://", "url(", "@import") if part in text]
    captions = text.count("<figcaption>How to read it: ")
    if not captions == text.count("<figure>") == text.count("<figcaption>"):
        found.append("a figure without words on how to read it")
    for chart in re.findall(r'<svg role="img"[^>]*class="chart.*?</svg>', text):
        if "<title" not in chart or "<desc" not in chart or re.search(r"<desc[^>]*></desc>", chart):
            found.append("a chart without title or description")
    return found


class TestPage:
    def test_is_well_formed_and_self_contained(self, page):
        assert complaints(page) == []
        assert page.startswith('<!DOCTYPE html>\n<html lang="en">')

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("</figcaption>", ""),
            ("</h2>", "</h3>"),
            ("<main", '<img src="https://example.org/x.png"><main'),
            ("<main", '<a href="#nowhere">x</a><main'),
            ("<main", "<script>1</script><main"),
            ("<main", '<p style="color:red">x</p><main'),
            ("How to read it: ", ""),
            ('role="img"', ""),
            ('id="top"', 'id="data"'),
            ("<desc", "<p"),
        ],
    )
    def test_the_check_sees_a_broken_page(self, page, old, new):
        assert complaints(page.replace(old, new, 1)) != []

    def test_has_all_sections_in_order(self, page):
        found = [attributes["id"] for attributes in Reader(page).named("section")]
        assert found == SECTIONS

    def test_forbids_everything_external_and_allows_its_own_style(self, page):
        import base64
        import hashlib

        policy = next(
            a["content"] for a in Reader(page).named("meta") if a.get("http-equiv") == "Content-Security-Policy"
        )
        style = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert policy.startswith("default-src 'none'; ")
        assert f"style-src 'sha256-{digest}'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert page.index("Content-Security-Policy") < page.index("<style>")

    def test_suits_dark_rooms_phones_and_paper(self, page):
        for part in ("prefers-color-scheme: dark", "@media print", "max-width: 44rem", 'name="viewport"'):
            assert part in page

    def test_titles_and_ids_stay_text(self, page):
        reader = Reader(page)
        assert {name for name, _, _ in reader.elements}.isdisjoint({"script", "b", "i"})
        assert len(reader.named("img")) == 1
        text = reader.text()
        assert "<script>alert(1)</script>" in text
        assert "<b>user" in text
        assert "\x00" not in page
        assert "long " * 33 not in text

    def test_is_the_same_every_time(self, model, page):
        again = copy.deepcopy(model)
        again._forget()
        assert build_report(again) == page

    def test_is_small(self, page):
        assert len(page) < 300_000

    def test_images_have_words(self, page):
        image = Reader(page).named("img")[0]
        assert "feature 0:" in image["alt"]
        assert image["src"].startswith("data:image/png;base64,")


@pytest.fixture(scope="module")
def text(page):
    return Reader(page).text().replace("\u00a0", " ")


def pairs_of(ratings):
    users, items, _ = ratings.triples()
    return [(ratings.users[user], ratings.items[item]) for user, item in zip(users, items, strict=True)]


class TestNumbers:
    def test_quality_is_the_library_s(self, model, text):
        heldout = model.heldout_
        levels = heldout.arrays.levels
        prediction = model.predict(pairs_of(heldout))
        values = level_values(heldout.levels)
        exact = np.mean([heldout.levels[r] == mode for r, mode in zip(levels, prediction.mode, strict=True)])
        near = np.mean([abs(int(r) + 1 - w) <= 1 for r, w in zip(levels, prediction.window, strict=True)])
        rmse = np.sqrt(np.mean((prediction.mean - values[levels]) ** 2))
        score = np.mean([np.log(prediction.proba[k, r]) for k, r in enumerate(levels)])
        row = f"doublefeature {percent(exact, 1)} {percent(near, 1)} {decimal(rmse, 3)} {decimal(score, 3)}"
        assert row.replace("\u00a0", " ") in text
        in_sample = model.predict(pairs_of(model.ratings_)).mean - values[model.ratings_.arrays.levels]
        assert decimal(np.sqrt(np.mean(in_sample**2)), 3) not in text
        assert f"On {heldout.n_ratings} ratings it had not seen" in text

    def test_data_are_the_library_s(self, model, text):
        assert f"users {model.ratings_.n_users} items {model.ratings_.n_items}" in text
        assert model.ratings_.fingerprint in text
        for level, n in zip(model.ratings_.levels, model.ratings_.level_counts, strict=True):
            assert re.search(rf" {level} level {level}: {n} \([\d.]+ %\) {n} ", text)

    def test_features_are_the_library_s(self, model, text):
        for k, feature in Material(model, 0.8).shared_features[:3]:
            low, high = feature.effect_80
            assert f"feature {k}: {signed(feature.effect)} ({signed(low)} to {signed(high)})" in text
            assert f"Feature {k} " in text
            if feature.recurrence:
                assert f"Found in {percent(feature.recurrence)} of draws".replace("\u00a0", " ") in text

    def test_top_items_are_the_library_s(self, model, text):
        for place, row in enumerate(model.top(5), 1):
            assert re.search(rf" {place}\. ", text)
            assert f"{decimal(row.mean)} ({decimal(row.lower)} to {decimal(row.upper)})" in text

    def test_the_diagnosis_is_the_library_s(self, model, text):
        diagnosis = model.diagnose()
        for sentence in (*diagnosis.reasons(), *diagnosis.advice()):
            assert sentence in text

    def test_mass_changes_the_intervals(self, model, page):
        wide = build_report(model, mass=0.95)
        assert "holds 95\u00a0% of the" in wide
        assert "holds 80\u00a0% of the" in page
        feature = model.features_[0]
        assert decimal(feature.effect_95[0]) in wide


@pytest.fixture(scope="module")
def graded(model):
    """The same model with an effect of its own for every item of a feature."""
    rng = np.random.default_rng(4)
    other = copy.copy(model)
    other._forget()
    draws = [
        draw._replace(item_effect=rng.normal(size=int(np.bitwise_count(draw.item_words).sum())), graded=True)
        for draw in model.posterior_
    ]
    other.posterior_ = replace(model.posterior_, draws=draws)
    return other


class TestGraded:
    def test_items_are_told_with_their_effects(self, graded):
        page = build_report(graded)
        assert complaints(page) == []
        text = Reader(page).text()
        assert "on average about" in text
        assert "more for some of the items than for others" in text
        told = Material(graded, 0.8).shared_features[0][1]
        for code, mean, lower, upper in list(zip(told.leading_items, *told.leading_effects, strict=True))[:8]:
            share = percent(float(told.item_probability[code])).replace("\u00a0", " ")
            assert f"{signed(mean)} ({signed(lower)} to {signed(upper)}), {share}" in text

    def test_the_others_are_told_as_before(self, text):
        assert "on average about" not in text
        assert "more for some of the items" not in text

    def test_answers_of_the_recommender(self, graded, model):
        user, item = model.ratings_.users[3], model.ratings_.items[4]
        found = graded.explain(user, item)
        parts = sum(part.contribution.mean for part in found.features)
        assert found.base + found.item_offset.mean + found.user_offset.mean + parts == pytest.approx(found.score.mean)
        assert not np.allclose(graded.predict([(user, item)]).proba, model.predict([(user, item)]).proba)
        assert graded.features_[0].leading_effects is not None
        assert model.features_[0].leading_effects is None


def without_features(model):
    def empty(draw):
        none = np.zeros(0)
        words = np.zeros_like(draw.user_words[:, :1]), np.zeros_like(draw.item_words[:, :1])
        return draw._replace(user_words=words[0], item_words=words[1], effect=none, item_rate=none)

    bare = copy.deepcopy(model)
    bare._forget()
    bare.posterior_.draws = [empty(draw) for draw in bare.posterior_.draws]
    return bare


class TestOddCases:
    def check(self, model, *words):
        page = build_report(model)
        assert complaints(page) == []
        assert [attributes["id"] for attributes in Reader(page).named("section")] == SECTIONS
        text = Reader(page).text().replace("\u00a0", " ")
        assert "nan" not in text.lower().split()
        for part in words:
            assert part in text

    def test_no_features(self, model):
        bare = without_features(model)
        assert not bare.features_
        self.check(bare, "No feature lasts over the draws")

    def test_one_chain_without_traces_or_held_out_ratings(self, ratings):
        model = fit(ratings, holdout=0.0, schedule=df.Schedule(sweeps=30, warmup=10, thin=2, chains=1, threads=1))
        model.posterior_.traces.clear()
        self.check(model, "One chain only", "No sweep-by-sweep record", "no ratings were held out", "--holdout 0.05")
        assert "RMSE" not in Reader(build_report(model)).text()

    def test_one_draw(self, ratings):
        model = fit(ratings, schedule=df.Schedule(sweeps=3, warmup=2, thin=1, chains=1, threads=1))
        self.check(model, "1 draw only")

    def test_one_item(self, ratings):
        one = relabelled(ratings, levels="1..5", items=["only"], keep=lambda columns: columns[1] == 0)
        self.check(fit(one), "to 1 item,")

    def test_two_levels(self, ratings):
        two = relabelled(ratings, levels="0..1", code=lambda levels: levels > 2)
        self.check(fit(two), "on levels 0..1")

    def test_text_levels(self, ratings):
        names = ["<low>", "rather low & more", "mid", "high", "as high as can be wished for by anybody"]
        words = relabelled(ratings, levels=names)
        self.check(fit(words), " < ".join(names), "as high as ca…")

    def test_falling_levels(self, ratings):
        self.check(fit(relabelled(ratings, levels="5<4<3<2<1")), "5<4<3<2<1")

    @pytest.mark.parametrize("levels", ["1..10", "0.5..5:0.5", "1..40"])
    def test_many_levels(self, ratings, levels):
        self.check(fit(relabelled(ratings, levels=levels, code=lambda codes: 2 * codes)), f"on levels {levels}")

    def test_fixed_noise(self, ratings):
        model = fit(ratings, priors=df.Priors(noise_scale=0.5))
        self.check(model)
        assert "trace-noise" not in build_report(model)

    def test_users_and_items_without_ratings(self, ratings):
        sparse = relabelled(ratings, levels="1..5", keep=lambda columns: (columns[0] < 20) & (columns[1] > 4))
        self.check(fit(sparse), "10 users with fewer than 5 ratings", "5 items with fewer than 5 ratings")

    def test_an_unfinished_fit(self, model):
        stopped = copy.copy(model)
        stopped.finished_ = False
        self.check(stopped, "stopped before its end")

    def test_not_fitted(self):
        with pytest.raises(NotFittedError, match="fit"):
            build_report(df.DoubleFeature())

    def test_no_draws(self, model):
        hollow = copy.deepcopy(model)
        hollow.posterior_.draws.clear()
        with pytest.raises(NotFittedError, match="no draws"):
            build_report(hollow)

    @pytest.mark.parametrize("mass", [0.0, 1.0, float("nan")])
    def test_a_mass_out_of_range(self, model, mass):
        with pytest.raises(SettingsError, match="mass"):
            build_report(model, mass=mass)


class TestWriting:
    def test_writes_the_page_and_makes_the_folder(self, model, page, tmp_path):
        write_report(model, tmp_path / "new" / "report.html")
        assert (tmp_path / "new" / "report.html").read_text("utf-8") == page
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]

    def test_a_failed_write_leaves_the_old_page(self, model, tmp_path, monkeypatch):
        target = tmp_path / "report.html"
        target.write_text("old")

        def fail(handle):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", fail)
        with pytest.raises(EnvironmentProblem, match="no space"):
            write_report(model, target)
        assert target.read_text() == "old"
        assert [path.name for path in tmp_path.iterdir()] == ["report.html"]

    def test_a_folder_in_the_way(self, model, tmp_path):
        with pytest.raises(EnvironmentProblem, match="writing the report"):
            write_report(model, tmp_path)
