"""Every page in a real Chromium: nothing serious for axe, no complaint of the browser, nothing scrolls sideways."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser

from console.audit import log
from tests.cast import make_cast
from tests.loadtests import house as load_tests
from tests.ui import judged as judged_rollout
from tests.ui import scene
from tests.ui.browser import PHONE, WIDE, Reader, window
from tests.ui.server import ConsoleServer

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# Pages with components of their own: screenshots in light, dark and at 390 px, and contrast in the dark.
LOOKED_AT = {
    "overview",
    "strategy",
    "judged",
    "loadtest",
    "services",
    "service",
    "rollout",
    "tenant",
    "patterns",
}


def pages_of_a_full_house() -> dict[str, str]:
    make_cast()
    house = scene.build()
    scene.samples()
    before, after, failed, running = load_tests.build(house.service)
    judged, compared = judged_rollout.build(house.stable, house.canary)
    return {
        "overview": "/",
        "services": "/services",
        "service": "/services/file-type",
        "version": "/services/file-type/versions/2",
        "try": "/services/file-type/try",
        "register": "/services/-/new",
        "rollouts": "/rollouts",
        "rollout": f"/rollouts/{house.rollout.pk}",
        "preview": f"/rollouts/{house.rollout.pk}/promote",
        "new-rollout": "/rollouts/new?service=file-type&version=1",
        "strategies": "/strategies",
        "strategy": f"/strategies/{judged.pk}",
        "edit-strategy": f"/strategies/{judged.pk}/edit",
        "judged": f"/rollouts/{compared.pk}",
        "new-strategy": "/strategies/new",
        "import": "/strategies/import",
        "loadtests": "/loadtests",
        "loadtest": f"/loadtests/{after.pk}?with={before.pk}",
        "loadtest-alone": f"/loadtests/{before.pk}",
        "loadtest-running": f"/loadtests/{running.pk}",
        "loadtest-failed": f"/loadtests/{failed.pk}",
        "new-loadtest": "/loadtests/new",
        "upload": "/loadtests/upload",
        "activity": "/activity",
        "settings": "/settings",
        "tenant": "/settings/tenants/platform",
        "form": "/settings/tenants/platform/tokens/new",
        "nodes": "/nodes",
        "node": "/nodes/node-1",
        "patterns": "/patterns",
    }


def test_every_page_is_accessible_silent_and_fits_a_phone(console: ConsoleServer, chromium: Browser) -> None:
    pages = pages_of_a_full_house()
    found: list[str] = []
    with window(chromium, console.url, color_scheme="light") as reader:
        reader.sign_in("ida")
        for name, path in pages.items():
            reader.open(path)
            reader.wait_charts()
            reader.wait_light("live")
            found += [f"{name} light {one}" for one in reader.serious()]
            if name in LOOKED_AT:
                reader.shoot(f"{name}-light")
                reader.page.emulate_media(color_scheme="dark")
                found += [f"{name} dark {one}" for one in reader.serious(only="color-contrast")]
                reader.shoot(f"{name}-dark")
                reader.page.emulate_media(color_scheme="light")
            reader.page.set_viewport_size(PHONE)
            if too_wide := reader.sideways():
                found.append(f"{name} is {too_wide} px wider than a phone")
            if name in LOOKED_AT:
                reader.shoot(f"{name}-phone")
            reader.page.set_viewport_size(WIDE)
            found += [f"{name} browser: {one}" for one in reader.complaints]
            reader.complaints.clear()
    assert not found, "\n".join(found)


def test_labels_of_marks_do_not_cover_one_another(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    scene.build()
    scene.samples()
    for weight in (11, 22, 33):
        log.record("system", "placement.shift", "service:file-type", after={"weight_percent": weight})
    with window(chromium, console.url) as reader:
        _note_what_is_written(reader)
        reader.sign_in("ida", "/services/file-type")
        reader.wait("window.written.includes('33 %')")
        written = reader.page.evaluate("window.written")
    assert not {"11 %", "22 %"} & set(written)


def test_charts_keep_the_clock_of_the_page(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    scene.build()
    scene.samples()
    with window(chromium, console.url, timezone_id="Asia/Tokyo") as reader:
        _note_what_is_written(reader)
        reader.sign_in("ida", "/services/file-type")
        reader.wait("window.written.some(text => /^[0-9]{2}:[0-9]{2}$/.test(text))")
        written = reader.page.evaluate("window.written")
    now = datetime.now(UTC)
    hours = {f"{now - timedelta(minutes=minutes):%H}" for minutes in range(20)}
    assert {text[:2] for text in written if re.fullmatch("[0-9]{2}:[0-9]{2}", text)} <= hours


def _note_what_is_written(reader: Reader) -> None:
    """A canvas has no text to read, so its writing is noted."""
    reader.page.add_init_script(
        "window.written = []; const write = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {"
        " window.written.push(text); return write.call(this, text, ...rest); };"
    )
