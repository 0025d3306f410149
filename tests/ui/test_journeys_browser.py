"""What people do in a real Chromium: sign in, stop and promote a rollout, jump, lose the connection and get it back."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from console.audit.models import Entry
from console.kit import events
from inference.models import Replica
from rollouts import actions
from rollouts.models import Rollout
from tests import factories
from tests.cast import Cast, make_cast
from tests.ui.browser import elsewhere, window
from tests.ui.server import ConsoleServer

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

STEPS: list[dict[str, Any]] = [{"setWeight": 10}, {"pause": {}}, {"setWeight": 50}, {"setWeight": 100}]


def paused_rollout(**fields: Any) -> Rollout:
    """Version 2 with 10 %, waiting for a person."""
    stable = factories.stable(1)
    canary = factories.version(2, of=stable.service)
    for of in (stable, canary):
        factories.replica(of)
    factories.placement(canary, role="canary", weight=10)
    given = {"state": "paused", "reason": "pause_step", "step_index": 1, "weight_percent": 10, "steps": STEPS}
    message = "Paused by the plan until a person resumes"
    return factories.rollout(canary, from_version=stable, message=message, **{**given, **fields})


def test_who_signs_in_lands_where_they_wanted_to_go(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    with window(chromium, console.url) as reader:
        reader.open("/rollouts")
        page = reader.page
        expect(page).to_have_url(f"{console.url}/login?next=%2Frollouts")
        page.get_by_label("User name").fill("ada")
        page.get_by_label("Password").fill("not this one")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("correct username and password")
        expect(page.get_by_label("User name")).to_have_value("ada")
        reader.complaints.clear()  # the browser itself notes the 422
        reader.sign_in("ada", "/rollouts")
        expect(page.get_by_role("heading", level=1)).to_have_text("Rollouts")
        assert reader.complaints == []


def test_the_chosen_theme_stays_and_comes_with_the_first_byte(
    console: ConsoleServer, chromium: Browser
) -> None:
    make_cast()
    with window(chromium, console.url, color_scheme="light") as reader:
        reader.sign_in("ada")
        reader.page.locator("#person-menu").click()
        with reader.page.expect_response("**/theme"):
            reader.page.get_by_role("button", name="Dark").click()
        assert _background(reader.page) == "rgb(13, 17, 23)"
        reader.open("/services")
        assert reader.page.locator("html").get_attribute("data-theme") == "dark"
        assert _background(reader.page) == "rgb(13, 17, 23)"
        assert reader.complaints == []


def _background(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))


def test_the_light_tells_of_a_lost_connection_and_of_its_return(
    console: ConsoleServer, chromium: Browser
) -> None:
    make_cast()
    with window(chromium, console.url) as reader:
        reader.sign_in("ada")
        reader.wait_light("live")
        console.stop()
        reader.wait_light("polling")
        expect(reader.page.locator("#live-light")).to_contain_text("Reconnecting - data from")
        elsewhere(lambda: factories.stable(1, of="born-meanwhile"))
        console.start()
        reader.wait_light("live", seconds=30)
        # Fresh without a reload: the reconnect made every fragment ask again.
        expect(reader.page.locator("#needs")).to_contain_text("born-meanwhile")


def test_a_page_without_answers_says_so_and_keeps_nothing_green(
    console: ConsoleServer, chromium: Browser
) -> None:
    make_cast()
    factories.replica(factories.stable(1))
    with window(chromium, console.url) as reader:
        reader.sign_in("ada", "/services")
        reader.wait_light("live")
        green = reader.page.evaluate("getComputedStyle(document.querySelector('.state[data-role=ok]')).color")
        console.stop()
        reader.page.evaluate("window.__later = Date.now; Date.now = () => window.__later() + 26000")
        reader.wait_light("lost")
        shown = reader.page.evaluate("getComputedStyle(document.querySelector('.state[data-role=ok]')).color")
        assert shown != green
        assert reader.page.title().startswith("?")
        assert "favicon-unknown" in str(reader.page.locator("#favicon").get_attribute("href"))


def test_twenty_changes_in_a_second_end_on_the_last_one(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    rollout = paused_rollout(state="progressing", reason="")
    with window(chromium, console.url) as reader:
        reader.sign_in("ada", f"/rollouts/{rollout.pk}")
        reader.wait_light("live")
        reader.page.locator("#verb-pause").focus()

        def change() -> None:
            for percent in range(1, 21):
                Rollout.objects.filter(pk=rollout.pk).update(
                    weight_percent=percent, message=f"now {percent} %"
                )
                events.push(f"rollout:{rollout.pk}", percent)

        elsewhere(change)
        expect(reader.page.locator("#rollout-steps .why-now")).to_contain_text("now 20 %")
        expect(reader.page.locator("#rollout-head")).to_contain_text("20 % on version 2")
        assert reader.page.evaluate("document.activeElement.id") == "verb-pause"
        assert reader.complaints == []


def test_a_change_while_the_answer_is_under_way_is_not_lost(
    console: ConsoleServer, chromium: Browser
) -> None:
    make_cast()
    rollout = paused_rollout()
    with window(chromium, console.url) as reader:
        reader.sign_in("ada", f"/rollouts/{rollout.pk}")
        reader.wait_light("live")
        row = Rollout.objects.filter(pk=rollout.pk)

        def overtaken(route: Route) -> None:
            """The answer was rendered before the second change, and arrives after its announcement."""
            answer = route.fetch()
            if not done:
                done.append(1)
                elsewhere(lambda: row.update(message="the second change"))
                elsewhere(lambda: events.push(f"rollout:{rollout.pk}", 2))
                reader.page.wait_for_timeout(600)
            route.fulfill(response=answer)

        done: list[int] = []
        reader.page.route("**/rollouts/*?part=steps", overtaken)
        elsewhere(lambda: row.update(message="the first change"))
        elsewhere(lambda: events.push(f"rollout:{rollout.pk}", 1))
        expect(reader.page.locator(".why-now")).to_contain_text("the second change")


def test_rows_keep_their_place_under_the_pointer(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    for name in ("alpha", "beta", "gamma"):
        factories.replica(factories.stable(1, of=name))
    with window(chromium, console.url) as reader:
        reader.sign_in("ada", "/services")
        reader.wait_light("live")
        names = reader.page.locator("#service-rows td.name a")
        reader.page.get_by_role("link", name="beta").hover()

        def crash() -> None:
            Replica.objects.filter(service__name="gamma").update(state="crashed")
            events.push("services", 1)

        elsewhere(crash)
        expect(reader.page.get_by_text("3 changed order")).to_be_visible()
        assert names.all_text_contents() == ["alpha", "beta", "gamma"]
        reader.page.locator("#take-order").click()
        expect(names.first).to_have_text("gamma")
        assert reader.complaints == []


def test_abort_takes_one_click_and_shows_what_follows(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    rollout = paused_rollout()
    with window(chromium, console.url) as reader:
        reader.sign_in("ada", f"/rollouts/{rollout.pk}")
        reader.wait_light("live")
        last = reader.page.locator(".rollout-verbs button, .rollout-verbs a").last
        expect(last).to_have_text("Abort")
        reader.page.keyboard.press("Shift+X")
        expect(reader.page.get_by_text("All traffic goes back to the stable version")).to_be_visible()
        expect(reader.page.locator("h1")).to_contain_text("aborted")
        expect(reader.page.locator("#rollout-steps")).to_contain_text("the fleet follows")
        assert reader.complaints == []
    rollout.refresh_from_db()
    assert (rollout.state, rollout.reason) == ("aborted", "manual")
    entry = Entry.objects.get(verb="rollout.abort")
    assert (entry.actor, entry.target) == ("user:ada", f"rollout:{rollout.pk}")


def test_pause_can_be_undone_from_its_toast(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    rollout = paused_rollout(state="progressing", reason="", step_index=0)
    with window(chromium, console.url) as reader:
        reader.sign_in("ada", f"/rollouts/{rollout.pk}")
        reader.wait_light("live")
        reader.page.locator("#verb-pause").click()
        expect(reader.page.locator("h1")).to_contain_text("paused")
        reader.page.get_by_role("button", name="Undo").click()
        expect(reader.page.locator("h1")).to_contain_text("progressing")
        assert reader.complaints == []


def test_promote_shows_numbers_first_and_refuses_a_stale_preview(
    console: ConsoleServer, chromium: Browser
) -> None:
    cast: Cast = make_cast()
    rollout = paused_rollout()
    with window(chromium, console.url) as reader:
        reader.sign_in("ada", f"/rollouts/{rollout.pk}")
        reader.wait_light("live")
        page = reader.page
        page.locator("#verb-promote").click()
        dialog = page.locator("#dialog")
        expect(dialog).to_contain_text("10 %")
        expect(dialog).to_contain_text("3 steps with their gates are skipped")
        expect(dialog).to_contain_text("1 of 1 replicas of version 2 ready")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        reader.shoot("dialog-light")
        dialog.get_by_label("Reason").fill("it looks good")
        # Meanwhile somebody else goes on: what Ada read is no longer true.
        ida = cast.ida.actor
        elsewhere(lambda: actions.resume(Rollout.objects.get(pk=rollout.pk), actor=ida))
        dialog.get_by_role("button", name="Promote to 100 %").click()
        expect(dialog).to_contain_text("changed while you were reading")
        expect(dialog).to_contain_text("2 steps with their gates are skipped")
        expect(dialog.get_by_label("Reason")).to_have_value("it looks good")
        reader.complaints.clear()  # the browser itself notes the 409
        dialog.get_by_role("button", name="Promote to 100 %").click()
        expect(dialog).to_be_hidden()
        expect(page.locator("#toasts")).to_contain_text("Promoting file-type 1 → 2.")
        expect(page.locator(".steps [aria-current=step]")).to_contain_text("Promote")
        assert reader.complaints == []
    entry = Entry.objects.get(verb="rollout.promote")
    assert (entry.actor, entry.reason) == ("user:ada", "it looks good")


def test_the_keyboard_alone_finds_and_previews(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    paused_rollout()
    with window(chromium, console.url) as reader:
        reader.sign_in("ada")
        page = reader.page
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.wait_for_url(f"{console.url}/services")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.textContent") == "file-type"
        page.keyboard.press("Enter")
        page.wait_for_url(f"{console.url}/services/file-type")
        page.keyboard.press("Control+k")
        page.keyboard.type("promote file")
        expect(page.locator("#jump-list [role=option]").first).to_contain_text("promote rollout")
        page.keyboard.press("Enter")
        expect(page.locator("#dialog")).to_contain_text("Promote to 100 %")
        expect(page.locator("#dialog-cancel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#dialog")).to_be_hidden()
        page.keyboard.press("?")
        expect(page.locator("#keys")).to_be_visible()
        page.keyboard.press("Escape")
        page.locator("#id_version").focus()
        page.keyboard.type("gs/?")
        expect(page).to_have_url(f"{console.url}/services/file-type")
        assert reader.complaints == []


def test_a_rollout_starts_and_stops_without_javascript(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    stable = factories.stable(1)
    factories.version(2, of=stable.service)
    with window(chromium, console.url, java_script_enabled=False) as reader:
        reader.sign_in("ada", "/services/file-type")
        page = reader.page
        page.get_by_role("link", name="Start rollout of version 2").click()
        expect(page.locator("#plan")).to_contain_text("file-type goes from version 1 to version 2")
        page.get_by_role("button", name="Start rollout").click()
        expect(page.locator("h1")).to_contain_text("file-type 1 → 2")
        page.get_by_role("button", name="Abort").click()
        expect(page.locator("h1")).to_contain_text("aborted")
