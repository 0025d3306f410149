"""Screenshots of each page: light, dark and at 390 px, for a person to look at."""

import pytest
from playwright.sync_api import Browser

from tests.cast import make_cast
from tests.ui import scene
from tests.ui.browser import PHONE, WIDE, window
from tests.ui.server import ConsoleServer

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_shots(console: ConsoleServer, chromium: Browser) -> None:
    make_cast()
    house = scene.build()
    scene.samples()
    pages = {
        "overview": "/",
        "services": "/services",
        "service": "/services/file-type",
        "version": "/services/file-type/versions/2",
        "rollouts": "/rollouts",
        "rollout": f"/rollouts/{house.rollout.pk}",
        "new-rollout": "/rollouts/new?service=file-type&version=2",
        "activity": "/activity",
        "settings": "/settings",
        "tenant": "/settings/tenants/platform",
        "nodes": "/nodes",
        "node": "/nodes/node-1",
        "patterns": "/patterns",
        "register": "/services/-/new",
    }
    for scheme, view in (("light", WIDE), ("dark", WIDE), ("light", PHONE)):
        suffix = scheme if view is WIDE else "phone"
        with window(chromium, console.url, viewport=view, color_scheme=scheme) as reader:
            reader.open("/login")
            reader.shoot(f"login-{suffix}")
            reader.sign_in("ida")
            for name, path in pages.items():
                reader.open(path)
                reader.wait_charts()
                print(name, suffix, reader.sideways(), reader.light(), reader.complaints)
                reader.complaints.clear()
                reader.shoot(f"{name}-{suffix}")
