"""The Open Inference Protocol's questions about server and models, with Triton's extensions, told from contracts."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson

from inference.contract import TensorSpec
from inference.plane.gateway import Gateway, Service
from inference.plane.pool import Pool
from inference.plane.refusals import Limit, RefusedError

# What is really served; shared memory is added where it is switched on.
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "statistics",
)


def server(*, shared_memory: bool = False) -> dict[str, Any]:
    try:
        number = version("pilothouse")
    except PackageNotFoundError:
        number = "0"
    extensions = [*EXTENSIONS, "system_shared_memory"] if shared_memory else list(EXTENSIONS)
    return {"name": "pilothouse", "version": number, "extensions": extensions}


def pool_of(service: Service, number: int | None) -> Pool:
    """Raises RefusedError: 404 for a version that is not there, 503 when there is none at all."""
    if number is not None:
        return service.pinned(number)
    pool = service.leading
    if pool is None:
        raise RefusedError(503, f"{service.name} has no version here", Limit("worker", 0, 0, 1.0))
    return pool


def model(service: Service, number: int | None) -> dict[str, Any]:
    pool = pool_of(service, number)
    return {
        "name": service.name,
        "versions": [str(one) for one in sorted(service.versions)],
        "platform": "onnxruntime_onnx",
        "inputs": [_tensor(tensor) for tensor in pool.contract.public_inputs],
        "outputs": [_tensor(tensor) for tensor in pool.contract.public_outputs],
    }


def model_ready(service: Service, number: int | None) -> None:
    """Raises RefusedError when not."""
    ready = service.ready if number is None else service.pinned(number).ready
    if not ready:
        raise RefusedError(503, f"{service.name} is not ready", Limit("worker", 0, 0, 1.0))


def config(service: Service, number: int | None) -> dict[str, Any]:
    """Triton's ModelConfig as far as clients read it."""
    pool = pool_of(service, number)
    contract = pool.contract
    skip = 1 if pool.codec.batched else 0
    hook = contract.spec.hooks.preprocess
    optional = {hook.input, hook.output} if hook else set()
    return {
        "name": service.name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "default_model_filename": "model.onnx",
        "version_policy": {"specific": {"versions": sorted(service.versions)}},
        "max_batch_size": contract.max_batch_size if pool.codec.batched else 0,
        "input": [
            {**_config(tensor, skip), "optional": tensor.name in optional, "is_shape_tensor": False}
            for tensor in contract.public_inputs
        ],
        "output": [
            {**_config(tensor, skip), "label_filename": tensor.labels or "", "is_shape_tensor": False}
            for tensor in contract.public_outputs
        ],
        "instance_group": [{"name": service.name, "kind": "KIND_AUTO", "count": len(pool.links)}],
        **({"dynamic_batching": {"max_queue_delay_microseconds": 0}} if pool.codec.batched else {}),
        "model_transaction_policy": {"decoupled": False},
        "response_cache": {"enable": False},
    }


def stats(pools: list[Pool]) -> dict[str, Any]:
    """Counters grow for as long as the plane lives, also over a worker's restart."""
    return {"model_stats": [_stats(pool) for pool in pools]}


def index(gateway: Gateway, tenant: str, body: bytes) -> list[dict[str, str]]:
    """What this tenant may call. Raises RefusedError."""
    only_ready = False
    if body.strip():
        try:
            told = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise RefusedError(400, f"the request is not JSON: {error}") from None
        if type(told) is not dict or type(told.get("ready", False)) is not bool:
            raise RefusedError(400, "ready must be true or false")
        only_ready = told.get("ready", False)
    return entries(gateway, tenant, only_ready=only_ready)


def entries(gateway: Gateway, tenant: str, *, only_ready: bool) -> list[dict[str, str]]:
    """One for each version that this tenant may call."""
    told = []
    for service in gateway.services.values():
        if not gateway.admission.may(tenant, service.name):
            continue
        for pool in service.versions.values():
            state, reason = _state(pool)
            if state == "READY" or not only_ready:
                entry = {"name": service.name, "version": str(pool.version), "state": state, "reason": reason}
                told.append(entry)
        for number, reason in service.broken.items():
            if not only_ready:
                entry = {"name": service.name, "version": str(number), "state": "UNAVAILABLE"}
                told.append({**entry, "reason": reason[:300]})
    return told


def _state(pool: Pool) -> tuple[str, str]:
    if pool.ready:
        return "READY", ""
    links = list(pool.links.values())
    crashed = next((link for link in links if link.state == "crashed"), None)
    if crashed is not None:
        return "UNAVAILABLE", "the model could not be loaded"
    if any(link.state == "draining" for link in links):
        return "UNLOADING", ""
    if links:
        return "LOADING", ""
    return ("UNLOADING", "") if pool.total else ("UNAVAILABLE", "unloaded")


def _tensor(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _config(tensor: TensorSpec, skip: int) -> dict[str, Any]:
    kind = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    return {"name": tensor.name, "data_type": f"TYPE_{kind}", "dims": tensor.shape[skip:]}


def _memory(pool: Pool) -> list[dict[str, Any]]:
    """Resident bytes of each worker, as it last said."""
    workers = [link.worker for link in pool.links.values() if link.worker is not None]
    return [{"type": "CPU", "id": one.ordinal, "byte_size": one.rss_bytes} for one in workers]


def _stats(pool: Pool) -> dict[str, Any]:
    meter = pool.meter
    batches = sorted(meter.batches.items())
    runs = sum(stat.count for _, stat in batches)

    def leaf(count: int, ns: int) -> dict[str, int]:
        return {"count": count, "ns": ns}

    return {
        "name": pool.service,
        "version": str(pool.version),
        "last_inference": meter.last_at,
        "inference_count": meter.inferences,
        "execution_count": runs,
        "inference_stats": {
            "success": leaf(meter.success, int(meter.success_seconds * 1e9)),
            "fail": leaf(meter.fail, int(meter.fail_seconds * 1e9)),
            "queue": leaf(sum(meter.queue.counts), int(meter.queue.sum * 1e9)),
            "compute_input": leaf(runs, sum(stat.input for _, stat in batches)),
            "compute_infer": leaf(runs, sum(stat.run for _, stat in batches)),
            "compute_output": leaf(runs, sum(stat.output for _, stat in batches)),
            "cache_hit": leaf(0, 0),
            "cache_miss": leaf(0, 0),
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": leaf(stat.count, stat.input),
                "compute_infer": leaf(stat.count, stat.run),
                "compute_output": leaf(stat.count, stat.output),
            }
            for rows, stat in batches
        ],
        "memory_usage": _memory(pool),
    }
