import pytest

from tests.e2e.kills import PARTS, Row, kill, steady_load
from tests.e2e.product import Product

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def test_whatever_is_killed_comes_back_true_and_workers_and_controllers_cost_no_request(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    product = Product(tmp_path_factory.mktemp("kills") / "home")
    rows: dict[str, Row] = {}
    try:
        product.start()
        with steady_load(product) as load:
            for part in PARTS:
                rows[part] = kill(product, part, load)
                print(rows[part].text)
    finally:
        product.clean_up()

    assert [row.text for row in rows.values() if row.healthy_after_seconds is None] == []
    for part in ("worker", "agent", "controller", "console", "redis"):
        assert rows[part].failed == 0, rows[part].text
    assert rows["worker"].sent > 100
