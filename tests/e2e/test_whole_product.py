"""The main job, end to end: served answers, a live page, a promoted and an aborted rollout, and nothing left behind."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from tests.e2e.product import Product
from tests.services import parts, prometheus
from tests.services.process import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]
RESULTS = Path(__file__).resolve().parents[2] / "test-results"

StartProduct = Callable[..., Product]


@pytest.fixture
def start_product(tmp_path: Path) -> Iterator[StartProduct]:
    started: list[Product] = []

    def start(*options: str, env: Mapping[str, str] | None = None) -> Product:
        product = Product(tmp_path / "home", *options, env=env)
        started.append(product)
        product.start()
        return product

    yield start
    for product in started:
        product.clean_up()


def walk_the_main_job(product: Product, *, source: str, record_as: str) -> None:
    assert product.infer("acme").headers["x-pilothouse-version"] == "1"
    assert httpx.get(f"{product.console}/readyz", timeout=10).status_code == 200
    assert product.infer("globex").status_code in {
        200,
        429,
    }  # its small quota is shared with the demo's traffic
    assert "/login" in httpx.get(f"{product.console}/", timeout=10).headers.get("location", "")

    good = product.roll_out(2)
    write_result(f"{record_as}-version-2", good)
    assert good["state"] == "promoted", good
    wait_until(
        lambda: product.infer("acme").headers["x-pilothouse-version"] == "2",
        seconds=15,
        what="version 2 to answer",
    )

    bad = product.roll_out(3)
    write_result(f"{record_as}-version-3", bad)
    assert bad["state"] == "aborted", bad
    assert bad["reason"] == "breach"
    assert "error_ratio" in json.dumps(bad)
    assert bad["weight_percent"] == 0
    assert {product.infer("acme").headers["x-pilothouse-version"] for _ in range(20)} == {"2"}
    assert source in json.dumps(product.rest("GET", f"rollouts/{bad['id']}"))


def write_result(name: str, body: object) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"rollout-{name}.json").write_text(json.dumps(body, indent=2), encoding="utf-8")


def end_and_look_for_leftovers(product: Product) -> None:
    assert product.processes()
    assert product.interrupt() in {0, 130}, product.tail()
    wait_until(lambda: not product.processes(), seconds=5, what="every process to be gone")
    for port in (product.console, product.plane):
        with pytest.raises(httpx.ConnectError):
            httpx.get(port, timeout=2)


def test_the_main_job_on_sqlite_with_the_embedded_signals(start_product: StartProduct) -> None:
    product = start_product("--no-prometheus")
    walk_the_main_job(product, source="embedded", record_as="sqlite-embedded")
    end_and_look_for_leftovers(product)

    product.start(seconds=60)  # a second start finds its state again
    assert product.infer("acme").headers["x-pilothouse-version"] == "2"
    end_and_look_for_leftovers(product)


def test_the_main_job_on_postgresql_with_real_prometheus(
    start_product: StartProduct, postgres_url: str
) -> None:
    if prometheus.find_binary() is None:
        parts.did_not_run("Prometheus", "apt-get install prometheus")
    product = start_product(env={"DATABASE_URL": postgres_url})
    walk_the_main_job(product, source="prometheus", record_as="postgresql-prometheus")
    end_and_look_for_leftovers(product)
