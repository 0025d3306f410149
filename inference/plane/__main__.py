"""python -m inference.plane: the gateway process of a node."""

import argparse
import logging
import sys
from pathlib import Path

import uvloop

from inference.plane import flags
from inference.plane.exchange import Limits
from inference.plane.node import StartError, run_node
from inference.plane.tls import TlsError


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m inference.plane", description=__doc__)
    parser.add_argument("--node-dir", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--max-body", type=int, default=Limits().body_bytes, metavar="BYTES")
    parser.add_argument(
        "--public-metrics", action="store_true", help="/metrics needs no key from other machines"
    )
    flags.add_to(parser)
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    limits = Limits(body_bytes=given.max_body)
    try:
        uvloop.run(
            run_node(
                given.node_dir,
                given.host,
                given.port,
                limits,
                public_metrics=given.public_metrics,
                options=flags.read(given),
            )
        )
    except (StartError, TlsError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
