"""The snippets of docs/ci.md, taken out of it and run as shell against the whole product."""

import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.product import PILOTHOUSE, Product
from tests.promises import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TEXT = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
ERRORS = {
    "indicator": "error_ratio",
    "max": 0.02,
    "window": "10s",
    "interval": "2s",
    "count": 2,
    "min_requests": 5,
}
STRATEGIES: dict[str, list[dict[str, Any]]] = {
    "ci-quick": [{"setWeight": 50}, {"analysis": {"gates": [ERRORS]}}],
    "ci-by-hand": [{"setWeight": 10}, {"pause": {}}],
}


def block(language: str, words: str) -> str:
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL) if words in text]
    assert len(found) == 1, words
    return str(found[0])


def github() -> str:
    job = yaml.safe_load(block("yaml", "runs-on"))["jobs"]["roll-out"]
    assert {"PILOTHOUSE_URL", "PILOTHOUSE_TOKEN", "SERVICE", "VERSION", "STRATEGY", "RUN_KEY"} == job[
        "env"
    ].keys()
    return str(job["steps"][0]["run"])


def gitlab() -> str:
    job = yaml.safe_load(block("yaml", "allow_failure"))["roll-out"]
    assert job["allow_failure"]["exit_codes"] == [5]
    return "\n".join(job["script"])


def curl() -> str:
    return block("sh", "#!/bin/sh")


SNIPPETS = {"github": github, "gitlab": gitlab, "curl": curl}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = Product(tmp_path_factory.mktemp("ci") / "home", "--no-prometheus")
    try:
        product.start()
        for name, steps in STRATEGIES.items():
            product.rest("POST", "strategies", json={"tenant": "platform", "name": name, "steps": steps})
        yield product
        product.interrupt()
    finally:
        product.clean_up()


def run(
    product: Product, snippet: str, version: int, strategy: str, key: str
) -> subprocess.CompletedProcess[str]:
    env = os.environ | {
        "PATH": f"{PILOTHOUSE.parent}:{os.environ['PATH']}",
        "PILOTHOUSE_URL": product.console,
        "PILOTHOUSE_TOKEN": product.credentials["token"],
        "SERVICE": "file-type",
        "VERSION": str(version),
        "STRATEGY": strategy,
        "RUN_KEY": key,
    }
    # As the runners do it: GitHub with -e, GitLab's shell likewise.
    return subprocess.run(
        ["bash", "-e", "-c", SNIPPETS[snippet]()],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("snippet", "good"), [("github", 2), ("gitlab", 1), ("curl", 2)])
def test_exit_codes_tell_promoted_aborted_and_needs_a_person(
    product: Product, snippet: str, good: int
) -> None:
    promoted = run(product, snippet, good, "ci-quick", f"{snippet}-good")
    assert promoted.returncode == 0, promoted.stdout + promoted.stderr
    aborted = run(product, snippet, 3, "ci-quick", f"{snippet}-bad")
    assert aborted.returncode == 3, aborted.stdout + aborted.stderr
    assert "error ratio" in aborted.stdout + aborted.stderr
    waits = run(product, snippet, 3, "ci-by-hand", f"{snippet}-hand")
    assert waits.returncode == 5, waits.stdout + waits.stderr
    again = run(product, snippet, 3, "ci-by-hand", f"{snippet}-hand")
    assert again.returncode == 5, again.stdout + again.stderr
    (mine,) = [row for row in product.rest("GET", "rollouts")["results"] if row["state"] == "paused"]
    product.rest("POST", f"rollouts/{mine['id']}/abort", json={"reason": "the test is over"})


def test_what_cannot_be_started_is_exit_code_1_and_says_why(product: Product) -> None:
    for snippet in SNIPPETS:
        refused = run(product, snippet, 99, "ci-quick", f"{snippet}-99")
        assert refused.returncode == 1, (snippet, refused)
        assert "version" in (refused.stdout + refused.stderr).lower()
