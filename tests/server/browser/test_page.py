"""The page in a real browser: rate, read reasons, reload, look around; by mouse, by keyboard, on a phone."""

from __future__ import annotations

import json
import shutil

import pytest

from doublefeature import DoubleFeature
from doublefeature.server.keys import new_key
from tests.server.browser.conftest import Watched
from tests.server.conftest import IMAGE, SCRIPT, tiny_ratings, with_texts
from tests.server.parts import running


def titles(page) -> list[str]:
    page.wait_for_selector(".theirs:not([aria-busy]) .cards > li h3")
    return page.locator(".theirs .cards > li h3").all_inner_texts()


def rated(page) -> list[str]:
    return page.locator(".rated .name").all_inner_texts()


def answer(page, level: int) -> None:
    """Answer the question and wait until its item is among the rated."""
    before = len(rated(page))
    page.locator(".question .picker button", has_text=str(level)).click()
    page.wait_for_function("n => document.querySelectorAll('.rated li').length > n", arg=before)
    page.wait_for_selector(".theirs:not([aria-busy]) .cards > li")
    page.wait_for_selector(".question .picker button")


class TestTryIt:
    def test_rating_five_changes_recommendations_gives_reasons_and_lasts(self, watched):
        page = watched.page
        watched.open()
        first = titles(page)
        means = page.locator(".prediction strong").all_inner_texts()
        for level in (5, 1, 5, 1, 5):
            answer(page, level)
        now = titles(page)
        assert len(rated(page)) == 5
        assert (now, page.locator(".prediction strong").all_inner_texts()) != (first, means)
        assert not set(rated(page)) & set(now)
        page.wait_for_function("() => !document.querySelector('.why.soft')")
        for why in page.locator(".why").all_inner_texts():
            assert why.startswith("Why: ")
            assert len(why) > 20
        assert "How sure" in page.locator(".sure summary").inner_text()
        assert page.locator(".prediction svg").first.get_attribute("aria-label").count("%") == 5
        kept = sorted(rated(page))
        page.reload()
        assert titles(page) == now
        assert sorted(rated(page)) == kept

    def test_search_and_rate_by_keyboard_alone(self, watched):
        page = watched.page
        watched.open()
        titles(page)
        page.locator(".mine input[type=search]").focus()
        page.keyboard.type("alie")
        page.wait_for_selector(".found li[role=option]")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_selector(".open .picker button")
        page.locator(".open .picker button").first.focus()
        for _ in range(4):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(".rated li")
        assert rated(page) == ["Alien"]
        assert page.locator(".rated button[aria-pressed=true]").inner_text() == "5"
        page.get_by_role("button", name="Remove Alien").click()
        page.wait_for_function("() => !document.querySelector('.rated li')")


class TestLookingAround:
    @pytest.mark.parametrize(
        ("place", "heading"),
        [("features", "Features"), ("items", "Items"), ("users", "Users"), ("model", "The model")],
    )
    def test_pages_open(self, watched, place, heading):
        watched.open(f"#/{place}")
        watched.page.wait_for_selector(f"h1:has-text('{heading}')")

    def test_from_a_list_to_an_item_a_user_and_a_feature(self, watched):
        page = watched.page
        watched.open("#/items")
        page.wait_for_selector("h1:has-text('Items')")
        page.locator("tbody a").first.click()
        page.wait_for_selector("h2:has-text('How it was rated')")
        watched.open("#/users")
        page.wait_for_selector("h1:has-text('Users')")
        page.locator("tbody a").first.click()
        page.wait_for_selector("h2:has-text('What they would be recommended')")
        page.locator("details summary").first.click()
        page.wait_for_selector(".sum table")
        watched.open("#/features/0")
        page.wait_for_selector("h1:has-text('Feature 0')")

    def test_an_unknown_address_says_so(self, watched):
        watched.open("#/items/%22nothing%22")
        watched.page.wait_for_selector("h1:has-text('That did not work')")
        assert "whole numbers" in watched.page.locator(".callout").inner_text()
        watched.problems[:] = [told for told in watched.problems if "409" not in told]

    def test_the_api_s_description_is_interactive(self, watched):
        page = watched.page
        watched.open("docs.html")
        page.wait_for_selector(".route")
        route = page.locator(".route", has_text="/api/v1/preferences").first
        route.locator("summary").click()
        route.locator("textarea").fill(json.dumps({"user": 3, "a": 1, "b": 2}))
        route.get_by_role("button", name="Send").click()
        page.wait_for_function(
            "() => [...document.querySelectorAll('pre')].some(one => one.textContent.startsWith('200'))"
        )

    def test_a_phone_needs_no_sideways_scrolling(self, chromium, service):
        context = chromium.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
        watched = Watched(context.new_page(), service.address)
        for place in ("", "#/features", "#/items", "#/users/3", "#/model", "docs.html"):
            watched.open(place)
            watched.page.wait_for_selector("main h1")
            watched.page.wait_for_selector("main:not([aria-busy])")
            wide = watched.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, (place, wide)
        watched.open()
        watched.page.locator(".reason details summary").first.click()
        rows = (
            watched.page.locator(".sum").first.locator("tr").evaluate_all("rows => rows.map(row => row.clientHeight)")
        )
        assert max(rows) < 200
        context.close()
        assert watched.problems == []


class TestSafety:
    def test_markup_in_titles_and_ids_stays_text(self, chromium, text_folder, tmp_path):
        copy = shutil.copytree(text_folder, tmp_path / "model")
        with running(copy, log=tmp_path / "log") as service:
            context = chromium.new_context()
            watched = Watched(context.new_page(), service.address)
            page = watched.page
            page.on("dialog", lambda dialog: watched.problems.append("a script ran"))
            watched.open("#/items")
            page.wait_for_selector("tbody a")
            page.locator("input[type=search]").fill("onerror")
            page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
            assert page.locator("tbody a").inner_text() == f"{IMAGE} <b>film</b>"
            page.locator("tbody a").click()
            page.wait_for_selector("h2:has-text('How it was rated')")
            assert page.locator("main b, main img").count() == 0
            watched.open(f"#/users/{json.dumps(SCRIPT).replace('/', '%2F').replace('<', '%3C')}")
            page.wait_for_selector("h1:has-text('alert(1)')")
            assert page.locator("main script").count() == 0
            context.close()
            assert watched.problems == []

    def test_a_key_is_asked_for_and_kept_in_the_tab(self, chromium, number_folder, tmp_path):
        copy = shutil.copytree(number_folder, tmp_path / "model")
        secret = new_key(tmp_path / "keys.json", "page", "read")
        with running(copy, "--keys", str(tmp_path / "keys.json"), log=tmp_path / "log") as service:
            context = chromium.new_context()
            page = context.new_page()
            page.goto(service.address)
            page.wait_for_selector("dialog[open]")
            page.locator("#door-key").fill(secret)
            page.keyboard.press("Enter")
            page.wait_for_selector(".cards > li")
            assert page.evaluate("localStorage.getItem('doublefeature.key')") is None
            context.close()
            assert secret not in (tmp_path / "log").read_text()


def test_levels_that_are_words(chromium, tmp_path):
    """A model whose levels are texts, and many: the page names them and never assumes five."""
    base = with_texts(tiny_ratings())
    from doublefeature import Ratings
    from tests.server.conftest import SCHEDULE

    users, items, levels = base.triples()
    words = ("awful", "poor", "fair", "fine", "superb")
    ratings = Ratings.from_triples(
        [base.users[u] for u in users],
        [base.items[i] for i in items],
        [words[k] for k in levels],
        levels="<".join(words),
    )
    folder = tmp_path / "model"
    DoubleFeature(preset="paper", seed=1, schedule=SCHEDULE).fit(ratings, out=folder)
    with running(folder, log=tmp_path / "log") as service:
        context = chromium.new_context()
        watched = Watched(context.new_page(), service.address)
        watched.open()
        titles(watched.page)
        answers = watched.page.locator(".question .picker button").all_inner_texts()
        assert answers == list(words)
        watched.page.locator(".question .picker button", has_text="superb").click()
        watched.page.wait_for_selector(".rated button[aria-pressed=true]")
        context.close()
        assert watched.problems == []
