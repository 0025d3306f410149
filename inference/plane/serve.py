"""pilothouse serve: one node, one model, no database and no Redis.

python -m inference.plane.serve --model-path M.onnx [--contract C.yaml] [--name N] [--host 127.0.0.1] [--port 8080]
    [--provider P] [--gpu-id N] [--threads N] [--replicas N] [--require-key KEY-FILE] [--cache DIR | --no-cache]
    [--grpc-port N] [--tls-certificate PEM --tls-key PEM [--tls-client-ca PEM [--trusted-gateway SAN]]]
    [--allow-client-shared-memory] [--allow-model-control]
"""

import argparse
import asyncio
import hashlib
import ipaddress
import json
import logging
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop
import yaml

from inference.contract import Contract, ContractError, check_against, infer_contract, parse_contract, to_json
from inference.graph import GraphError, Signature, read_signature
from inference.plane import cache, cpus, flags
from inference.plane.exchange import Limits
from inference.plane.node import Plane, StartError
from inference.plane.probe import ProbeError, ask_worker
from inference.plane.refusals import RefusedError
from inference.plane.routes import Routes, WorkerRoute
from inference.plane.tls import TlsError
from inference.protocol import KeySpec, ReplicaState, ServiceSpec, Snapshot, TenantSpec, VersionSpec

TENANT = "local"
FIRST_WAIT_SECONDS = 0.2
LAST_WAIT_SECONDS = 10.0
HEALTHY_SECONDS = 30.0
STOP_SECONDS = 5.0
DRAIN_SECONDS = 30.0
LOAD_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Model:
    """folder: where the graph and all files of the contract are."""

    name: str
    folder: Path
    file: str
    contract: Contract
    signature: Signature
    inferred: bool


def read_model(path: Path, contract_path: Path | None, name: str | None) -> Model:
    """Raises StartError."""
    if not path.is_file():
        raise StartError(f"{path} is not a file")
    folder, file = path.resolve().parent, path.name
    try:
        signature = read_signature(folder, file)
        if contract_path is None:
            contract = infer_contract(signature, name or _name_from(path))
        else:
            contract = parse_contract(contract_path.read_bytes())
            check_against(contract, signature, folder)
    except GraphError as error:
        raise StartError(str(error)) from None
    except OSError as error:
        raise StartError(f"{error.filename}: {error.strerror}") from None
    except ContractError as error:
        lines = [f"  {field or 'file'}: {why}" for field, why in error.fields.items()]
        raise StartError("\n".join([f"{contract_path} does not fit {file}:", *lines])) from None
    return Model(name or contract.metadata.name, folder, file, contract, signature, contract_path is None)


def _name_from(path: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")
    return name or "model"


def read_keys(path: Path) -> list[str]:
    """One key a line; empty lines and lines that begin with # do not count. Raises StartError."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{path} cannot be read: {error}") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys or not all(key.startswith("ph_") and len(key) >= 20 for key in keys):
        raise StartError(
            f"{path} needs one key a line, each beginning with ph_ and at least 20 characters long"
        )
    return keys


def routes_for(
    model: Model, sockets: list[Path], keys: list[str] | None, *, number: int = 1, weight: int = 100
) -> Routes:
    replicas = len(sockets)
    version = VersionSpec(1, "local", (), to_json(model.contract), replicas, weight)
    snapshot = Snapshot(
        epoch="local",
        number=number,
        services=(ServiceSpec(model.name, TENANT, (version,)),),
        tenants=(TenantSpec(TENANT, 1, "open"),),
        keys=tuple(KeySpec(hashlib.sha256(key.encode()).hexdigest(), TENANT, None) for key in keys or ()),
    )
    workers = tuple(WorkerRoute(model.name, 1, ordinal, str(path)) for ordinal, path in enumerate(sockets))
    return Routes("local", snapshot, workers, open_access=keys is None)


class Keeper:
    """One worker process: started, and started again with growing pauses for as long as it is wanted."""

    def __init__(self, command: list[str], socket: Path, ordinal: int) -> None:
        self.command = [*command, "--socket", str(socket), "--ordinal", str(ordinal)]
        self.socket = socket
        self.process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def run(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while not self._stopping:
            began = time.monotonic()
            # A session of its own: Ctrl-C in the terminal is ours to answer, workers drain after the plane.
            self.process = await asyncio.create_subprocess_exec(*self.command, start_new_session=True)
            code = await self.process.wait()
            if self._stopping:
                return
            if time.monotonic() - began > HEALTHY_SECONDS:
                wait = FIRST_WAIT_SECONDS
            told = f"killed by signal {-code}" if code < 0 else f"exit {code}"
            print(f"worker ended ({told}); starting it again in {wait:.1f} s", flush=True)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LAST_WAIT_SECONDS)

    async def stop(self) -> None:
        self._stopping = True
        process = self.process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


async def wait_until_ready(sockets: list[Path], keepers: list[Keeper]) -> None:
    """Until every worker is ready. Raises StartError with the reason of the first that cannot load."""
    waiting = list(sockets)
    while waiting:
        await asyncio.sleep(0.05)
        for socket in list(waiting):
            try:
                status = await asyncio.to_thread(ask_worker, socket)
            except ProbeError:
                continue
            if status.state is ReplicaState.READY:
                waiting.remove(socket)
                phases = ", ".join(
                    f"{name} {seconds * 1e3:.0f} ms" for name, seconds in status.load_phases.items()
                )
                print(f"worker {status.pid} ready on {status.providers[0]}: {phases}", flush=True)
            elif status.state is ReplicaState.CRASHED:
                raise StartError(f"the model cannot be loaded: {status.detail}")
        broken = next((one.process for one in keepers if one.process and one.process.returncode == 2), None)
        if broken is not None:
            raise StartError("a worker refused its command line")


class House:
    """The one model with its workers; loads and unloads it, also by a client's order where that is allowed."""

    def __init__(self, plane: Plane, model: Model, command: list[str], sockets: list[Path]) -> None:
        self.plane = plane
        self.model = model
        self.command = command
        self.sockets = sockets
        self.keys: list[str] | None = None
        self.keepers: list[Keeper] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._number = 0
        self._turn = asyncio.Lock()

    def start(self) -> None:
        self.keepers = [Keeper(self.command, path, ordinal) for ordinal, path in enumerate(self.sockets)]
        self._apply(self.sockets, 100)
        self._tasks = [asyncio.create_task(keeper.run()) for keeper in self.keepers]

    async def stop(self) -> None:
        await asyncio.gather(*(keeper.stop() for keeper in self.keepers))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.keepers, self._tasks = [], []

    def _apply(self, sockets: list[Path], weight: int) -> None:
        self._number += 1
        routes = routes_for(self.model, sockets, self.keys, number=self._number, weight=weight)
        self.plane.apply(routes)

    async def load(self, service: str) -> None:
        """Raises RefusedError. A model that is loaded stays as it is."""
        async with self._turn:
            if not self.keepers:
                self.start()
            try:
                async with asyncio.timeout(LOAD_SECONDS):
                    await wait_until_ready(self.sockets, self.keepers)
                    pool = self.plane.gateway.services[self.model.name].versions[1]
                    await _until(lambda: pool.ready)
            except StartError as error:
                await self.stop()
                self._apply([], 0)
                raise RefusedError(400, f"failed to load '{service}': {error}") from None
            except TimeoutError:
                raise RefusedError(500, f"'{service}' is still loading after {LOAD_SECONDS:.0f} s") from None

    async def unload(self, service: str) -> None:
        """No new requests from here on; those in hand are answered, then the workers end."""
        async with self._turn:
            if not self.keepers:
                return
            self._apply(self.sockets, 0)
            pool = self.plane.gateway.services[self.model.name].versions[1]
            try:
                async with asyncio.timeout(DRAIN_SECONDS):
                    await _until(lambda: not pool.total)
            except TimeoutError:
                print(f"{pool.total} requests were still in hand when {service} was unloaded", flush=True)
            self._apply([], 0)
            await self.stop()
            pool.hope_until = 0.0  # nobody is coming back: say so at once


async def _until(true: Callable[[], bool]) -> None:
    """Looks again and again: what it waits for announces itself to nobody."""
    wait = 0.005
    for _ in iter(true, True):
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, 0.1)


async def serve(given: argparse.Namespace, model: Model, keys: list[str] | None) -> None:
    """Raises StartError, TlsError."""
    home = Path(tempfile.mkdtemp(prefix="pilothouse-"))
    plane = Plane(Limits(), options=flags.read(given))
    contract_file = home / "contract.json"
    contract_file.write_text(json.dumps(to_json(model.contract)))
    about = [
        "--version-dir", str(model.folder), "--model", model.file, "--contract", str(contract_file),
        "--threads", str(given.threads), "--provider", given.provider,
        *(["--cache", str(given.cache)] if given.cache is not None else []),
    ]  # fmt: skip
    command = [
        sys.executable, "-m", "inference.plane.worker", *about,
        "--service", model.name, "--version", "1", "--gpu-id", str(given.gpu_id),
    ]  # fmt: skip
    house = House(
        plane, model, command, [home / f"worker-{ordinal}.sock" for ordinal in range(given.replicas)]
    )
    house.keys = keys
    preparing: asyncio.Task[None] | None = None
    try:
        await plane.start(given.host, given.port)
        if given.allow_model_control:
            plane.set_control(house)
        house.start()
        running = asyncio.create_task(plane.run())
        ready = asyncio.create_task(wait_until_ready(house.sockets, house.keepers))
        await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            _greet(given, plane, model, keys)
            if given.cache is not None:
                preparing = asyncio.create_task(_prepare(about))
        else:
            ready.cancel()
        await running
        print("drained", flush=True)
    finally:
        if preparing is not None:
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)
        await house.stop()
        shutil.rmtree(home, ignore_errors=True)


async def _prepare(about: list[str]) -> None:
    """Make the next start quick, politely and beside the serving. What it says is for those who ask it themselves."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "inference.plane.prepare", *about,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _greet(given: argparse.Namespace, plane: Plane, model: Model, keys: list[str] | None) -> None:
    shown = f"[{given.host}]" if ":" in given.host else given.host
    scheme = "http" if plane.options.tls is None else "https"
    if plane.grpc is not None:
        print(f"gRPC at {shown}:{plane.grpc.port}", flush=True)
    print(
        f"{model.name} is served at {scheme}://{shown}:{plane.port}/v2/models/{model.name}/infer", flush=True
    )
    if keys is None:
        print("no key is needed: only this machine can connect", flush=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pilothouse serve", description="Serve one ONNX model over HTTP, without a database."
    )
    parser.add_argument("--model-path", type=Path, required=True)
    parser.add_argument("--contract", type=Path, help="a ModelContract; inferred from the graph when absent")
    parser.add_argument("--print-contract", action="store_true", help="print the contract that it serves by")
    parser.add_argument("--name", help="public name; default: the contract's, or the file's")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--provider", help="execution provider: cpu (default), cuda, openvino, ...")
    parser.add_argument("--gpu-id", type=int, help="means --provider cuda unless another is named")
    parser.add_argument("--threads", type=int, help="of each worker; default: cores / replicas")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument(
        "--require-key", type=Path, metavar="KEY-FILE", help="keys clients must show, one a line"
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="prepared models; default: the user's cache"
    )
    parser.add_argument("--no-cache", action="store_true", help="load the model as it is each time")
    parser.add_argument(
        "--allow-model-control", action="store_true", help="clients with a key may load and unload the model"
    )
    flags.add_to(parser)
    given = parser.parse_args(argv)
    if given.replicas < 1 or (given.threads is not None and given.threads < 1):
        parser.error("--replicas and --threads must be at least 1")
    given.threads = given.threads or cpus.threads_for(given.replicas)
    given.provider = given.provider or ("cpu" if given.gpu_id is None else "cuda")
    given.gpu_id = given.gpu_id or 0
    given.cache = None if given.no_cache else _cache_folder(given.cache)
    return given


def _cache_folder(told: Path | None) -> Path | None:
    """The folder, made; None where the default one cannot be."""
    folder = told or cache.default_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        if told is not None:
            raise StartError(f"{folder} cannot be made: {error.strerror}") from None
        return None
    return folder


def main(argv: list[str]) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    try:
        given = _arguments(argv)
        if given.require_key is None and not _is_loopback(given.host):
            raise StartError(
                f"{given.host} can be reached from elsewhere: name keys with --require-key KEY-FILE"
            )
        keys = read_keys(given.require_key) if given.require_key is not None else None
        model = read_model(given.model_path, given.contract, given.name)
        if model.inferred:
            print(
                "no contract was given, it was inferred from the graph; --print-contract shows it", flush=True
            )
        if given.print_contract:
            print(yaml.safe_dump(to_json(model.contract), sort_keys=False), flush=True)
        uvloop.run(serve(given, model, keys))
    except (StartError, TlsError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
