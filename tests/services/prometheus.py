"""A private Prometheus that scrapes given targets every second."""

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.services.process import Child, free_port, wait_until

_CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 1s}}
scrape_configs:
  - job_name: pilothouse
    static_configs: [{{targets: {targets}}}]
"""


def find_binary() -> Path | None:
    found = shutil.which("prometheus")
    return Path(found) if found else None


class PrometheusServer:
    """targets: `host:port` of /metrics endpoints."""

    def __init__(self, binary: Path, targets: Sequence[str], *, folder: Path) -> None:
        self.binary = binary
        self.targets = list(targets)
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.child: Child | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "prometheus.yml"
        config.write_text(_CONFIG.format(targets=json.dumps(self.targets)), encoding="utf-8")
        self.child = Child(
            [
                self.binary,
                f"--config.file={config}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            folder=self.folder,
            log=self.folder / "prometheus.log",
        )
        self.child.wait_ready(lambda: self._status("/-/ready") == 200)

    def stop(self) -> None:
        if self.child is not None:
            self.child.stop()

    def wait_for_scrape(self, *, seconds: float = 10) -> None:
        """Until every target has been scraped well at least once."""
        wait_until(self._all_up, seconds=seconds, what=f"a scrape of {', '.join(self.targets)}", every=0.2)

    def _all_up(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/api/v1/targets?state=active", timeout=2) as answer:
            active = json.load(answer)["data"]["activeTargets"]
        return len(active) == len(self.targets) and all(target["health"] == "up" for target in active)

    def _status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(self.url + path, timeout=1) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0
