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


def enter_key(page, key: str) -> None:
    page.locator("#door-key").fill(key)
    page.keyboard.press("Enter")


@pytest.fixture
def behind_a_door(chromium, number_folder, tmp_path):
    """The page of a service that asks for a key, its address, and the key."""
    copy = shutil.copytree(number_folder, tmp_path / "model")
    secret = new_key(tmp_path / "keys.json", "page", "read")
    with running(copy, "--keys", str(tmp_path / "keys.json"), log=tmp_path / "log") as service:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(service.address)
        yield page, service.address, secret
        context.close()


def answer(page, level: int) -> None:
    """Answer the question and wait until its item is among the rated."""
    before = len(rated(page))
    page.locator(".question .picker button", has_text=str(level)).click()
    page.wait_for_function("n => document.querySelectorAll('.rated li').length > n", arg=before)
    page.wait_for_selector(".theirs:not([aria-busy]) .cards > li")
    page.wait_for_selector(".question .picker button")


def focused(page, selector: str) -> bool:
    return page.evaluate("selector => document.activeElement.matches(selector)", selector)


def settle(page) -> None:
    page.wait_for_selector(".theirs:not([aria-busy]) .cards > li")


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
        assert page.locator(".found").is_hidden()
        assert focused(page, ".open .picker button:first-child")
        for _ in range(4):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(".rated li")
        assert rated(page) == ["Alien"]
        assert page.locator(".rated button[aria-pressed=true]").inner_text() == "5"
        assert focused(page, ".mine input[type=search]")
        assert page.locator(".found").is_hidden()
        page.get_by_role("button", name="Remove Alien").click()
        page.wait_for_function("() => !document.querySelector('.rated li')")

    def test_choosing_with_the_mouse_opens_the_panel_and_closes_the_list(self, watched):
        page = watched.page
        watched.open()
        titles(page)
        page.locator(".mine input[type=search]").click()
        page.locator(".found li[role=option]").first.click()
        page.wait_for_selector(".open .picker button")
        assert page.locator(".found").is_hidden()
        assert focused(page, ".open .picker button:first-child")

    def test_an_answer_that_comes_late_does_not_open_the_list_again(self, watched):
        page = watched.page
        watched.open()
        titles(page)
        held = []
        page.route("**/api/v1/items?*", lambda route: held.append(route))
        page.locator(".mine input[type=search]").focus()
        with page.expect_request("**/api/v1/items?*"):
            page.keyboard.type("alie")
        page.keyboard.press("Escape")
        with page.expect_response("**/api/v1/items?*"):
            held.pop().continue_()
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.locator(".found").is_hidden()

    def test_focus_stays_near_what_was_rated(self, watched):
        page = watched.page
        watched.open()
        titles(page)
        for count in (1, 2):
            page.locator(".question .picker button").nth(3).press("Enter")
            page.wait_for_function("n => document.querySelectorAll('.rated li').length === n", arg=count)
            assert page.locator(".question h3").count() == 1
            settle(page)
            assert focused(page, ".question .picker button:first-child")
        card = page.locator(".cards > li").nth(1)
        name = card.locator("h3").inner_text()
        card.locator(".rate button").last.press("Enter")
        page.wait_for_function("name => document.querySelector('.rated .name').textContent === name", arg=name)
        settle(page)
        assert focused(page, ".cards > li:nth-child(2) .rate button")
        page.locator(".rated .remove").first.press("Enter")
        assert focused(page, ".rated li:first-child .remove")
        settle(page)
        assert focused(page, ".rated li:first-child .remove")
        for _ in range(2):
            page.locator(".rated .remove").last.press("Enter")
        settle(page)
        assert focused(page, ".mine input[type=search]")

    def test_an_open_sum_stays_open(self, watched):
        page = watched.page
        watched.open()
        shown = titles(page)
        page.wait_for_function("() => !document.querySelector('.why.soft')")
        for summary in page.locator(".reason > details > summary").all():
            summary.click()
        answer(page, 3)
        kept = len(set(shown) & set(titles(page)))
        page.wait_for_function("() => !document.querySelector('.why.soft')")
        assert page.locator(".reason > details[open]").count() == kept

    def test_bars_say_their_chances(self, watched):
        watched.open()
        titles(watched.page)
        texts = watched.page.locator(".prediction svg").first.locator("text.share").all_text_contents()
        assert len(texts) == 5
        assert all(text.endswith("%") for text in texts)

    @pytest.mark.parametrize("kept", ['{"rated":5}', "nonsense", "null", '{"rated":[null,{"item":{}}],"doubts":{}}'])
    def test_nonsense_in_the_store_is_survived(self, watched, kept):
        watched.page.add_init_script(f"localStorage.setItem('doublefeature.try', {json.dumps(kept)})")
        watched.open()
        assert titles(watched.page)
        assert rated(watched.page) == []


class TestTrouble:
    def test_a_service_that_stops_is_told_and_tried_again(self, watched):
        page = watched.page
        watched.open()
        titles(page)
        page.route("**/api/v1/**", lambda route: route.abort())
        page.locator(".question .picker button").first.click()
        page.wait_for_selector(".note .callout:has-text('does not answer')")
        assert page.locator("[aria-busy]").count() == 0
        assert len(rated(page)) == 1
        page.unroute("**/api/v1/**")
        page.get_by_role("button", name="Try again").press("Enter")
        page.wait_for_selector(".theirs h2:has-text('Recommended for you')")
        assert page.locator(".note .callout").count() == 0
        assert focused(page, ".theirs h2")
        watched.problems[:] = [told for told in watched.problems if "ERR_FAILED" not in told]

    def test_the_api_s_description_tells_trouble_too(self, watched):
        page = watched.page
        page.route("**/openapi.json", lambda route: route.abort())
        watched.open("docs.html")
        page.wait_for_selector(".callout:has-text('does not answer')")
        page.unroute("**/openapi.json")
        page.get_by_role("button", name="Try again").click()
        page.wait_for_selector(".route")
        watched.problems[:] = [told for told in watched.problems if "ERR_FAILED" not in told]

    def test_a_busy_service_is_asked_again_but_not_for_ever(self, watched):
        page = watched.page
        asked = []

        def refuse(route):
            asked.append(route.request.url)
            route.fulfill(status=503, json={"error": "busy", "detail": "too much is waiting."})

        page.clock.install()
        page.route("**/api/v1/model", refuse)
        watched.open("#/items")
        page.wait_for_selector("#busy:has-text('busy')")
        while not page.locator(".callout").count():
            page.clock.run_for(1000)
        assert len(asked) == 8
        assert "too much is waiting" in page.locator(".callout").inner_text()
        assert page.locator("#busy").inner_text() == ""
        page.unroute("**/api/v1/model")
        page.get_by_role("button", name="Try again").click()
        page.wait_for_selector("h1:has-text('Items')")
        watched.problems[:] = [told for told in watched.problems if "503" not in told]


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

    @pytest.mark.parametrize("place", ["items/%22nothing%22", "items/%E0%A4", "users/999999", "features/abc"])
    def test_an_unknown_address_says_so_plainly(self, watched, place):
        watched.open(f"#/{place}")
        watched.page.wait_for_selector("h1:has-text('That did not work')")
        kind = place.partition("/")[0]
        assert watched.page.locator(".callout").inner_text() == f"There is no such {kind[:-1]}."
        watched.page.get_by_role("link", name=f"all {kind}").click()
        watched.page.wait_for_selector(f"main:not([aria-busy]) h1:has-text('{kind.capitalize()}')")
        watched.problems[:] = [told for told in watched.problems if not any(f" {n} " in told for n in (404, 409, 422))]

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

    def test_a_key_is_asked_for_and_kept_in_the_tab(self, behind_a_door, tmp_path):
        page, _, secret = behind_a_door
        page.wait_for_selector("dialog[open]")
        enter_key(page, secret)
        page.wait_for_selector(".cards > li")
        assert page.evaluate("localStorage.getItem('doublefeature.key')") is None
        assert secret not in (tmp_path / "log").read_text()

    def test_a_wrong_key_is_said_to_be_wrong(self, behind_a_door):
        page, address, secret = behind_a_door
        enter_key(page, "wrong")
        page.wait_for_selector("#door-told:has-text('not accepted')")
        enter_key(page, "schlüssel✓")
        page.wait_for_selector("#door-told:has-text('plain letters')")
        assert page.evaluate("sessionStorage.length") == 0
        page.keyboard.press("Escape")
        page.wait_for_selector(".callout:has-text('asks for a key')")
        assert page.locator("dialog[open]").count() == 0
        page.get_by_role("button", name="Enter a key").click()
        enter_key(page, secret)
        page.wait_for_selector(".cards > li")
        page.evaluate("sessionStorage.clear()")
        page.goto(f"{address}docs.html")
        route = page.locator(".route", has_text="/api/v1/model").first
        route.locator("summary").click()
        route.get_by_role("button", name="Send").click()
        enter_key(page, secret)
        page.wait_for_selector("pre:has-text('200')")


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
