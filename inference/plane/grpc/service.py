"""The questions and orders of the service; each answer is made from the same words as over HTTP."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from inference.plane import oip, regions, repository
from inference.plane.datatypes import DATATYPES
from inference.plane.gateway import Gateway, Service
from inference.plane.grpc.messages import CLASSES
from inference.plane.refusals import RefusedError
from inference.plane.regions import Regions
from inference.plane.repository import Control

# Enum numbers of ModelConfig: our datatype codes, but for the last two.
_TYPES = {f"TYPE_{datatype.name}": datatype.code for datatype in DATATYPES.values()}
_TYPES |= {"TYPE_STRING": 13, "TYPE_BF16": 14}
_KINDS = {"KIND_AUTO": 0, "KIND_GPU": 1, "KIND_CPU": 2, "KIND_MODEL": 3}

# A request of a known tenant ("" where none is needed) to an answer.
Handler = Callable[[str, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    handler: Handler
    keyed: bool = True

    @property
    def request(self) -> Any:
        return CLASSES[f"{self.name}Request"]


def message(kind: str, /, **fields: Any) -> Any:
    return CLASSES[kind](**fields)


class Questions:
    """Every method but the inferences, as a table."""

    def __init__(self, gateway: Gateway, memory: Regions) -> None:
        self.gateway = gateway
        self.regions = memory
        self.control: Control | None = None

    def methods(self) -> list[Method]:
        return [
            Method("ServerLive", self._live, keyed=False),
            Method("ServerReady", self._ready, keyed=False),
            Method("ServerMetadata", self._server, keyed=False),
            Method("ModelReady", self._model_ready),
            Method("ModelMetadata", self._model),
            Method("ModelConfig", self._config),
            Method("ModelStatistics", self._statistics),
            Method("RepositoryIndex", self._index),
            Method("RepositoryModelLoad", self._load),
            Method("RepositoryModelUnload", self._unload),
            Method("SystemSharedMemoryStatus", self._system_status),
            Method("SystemSharedMemoryRegister", self._system_register),
            Method("SystemSharedMemoryUnregister", self._system_unregister),
            Method("CudaSharedMemoryStatus", self._cuda_status),
            Method("CudaSharedMemoryRegister", self._cuda_register),
            Method("CudaSharedMemoryUnregister", self._cuda_unregister),
            Method("TraceSetting", self._trace),
            Method("LogSettings", self._log),
        ]

    async def _live(self, tenant: str, asked: Any) -> Any:
        return message("ServerLiveResponse", live=True)

    async def _ready(self, tenant: str, asked: Any) -> Any:
        return message("ServerReadyResponse", ready=not self.gateway.unready())

    async def _server(self, tenant: str, asked: Any) -> Any:
        return message("ServerMetadataResponse", **oip.server(shared_memory=self.regions.enabled))

    def _service(self, tenant: str, asked: Any) -> tuple[Service, int | None]:
        """Raises RefusedError 404."""
        service = self.gateway.services.get(asked.name)
        if service is None or not self.gateway.admission.may(tenant, asked.name):
            raise RefusedError(404, f"Request for unknown model: '{asked.name[:255]}' is not found")
        if not asked.version:
            return service, None
        if not (asked.version.isascii() and asked.version.isdigit()) or len(asked.version) > 9:
            raise RefusedError(404, f"version {asked.version[:50]} of {service.name} is not found")
        return service, int(asked.version)

    async def _model_ready(self, tenant: str, asked: Any) -> Any:
        try:
            oip.model_ready(*self._service(tenant, asked))
        except RefusedError:
            return message("ModelReadyResponse", ready=False)
        return message("ModelReadyResponse", ready=True)

    async def _model(self, tenant: str, asked: Any) -> Any:
        return message("ModelMetadataResponse", **oip.model(*self._service(tenant, asked)))

    async def _config(self, tenant: str, asked: Any) -> Any:
        told = oip.config(*self._service(tenant, asked))
        for tensor in [*told["input"], *told["output"]]:
            tensor["data_type"] = _TYPES[tensor["data_type"]]
        for tensor in told["input"]:
            tensor["format"] = 0
        for group in told["instance_group"]:
            group["kind"] = _KINDS[group["kind"]]
        return message("ModelConfigResponse", config=told)

    async def _statistics(self, tenant: str, asked: Any) -> Any:
        if asked.name:
            service, number = self._service(tenant, asked)
            pools = list(service.versions.values()) if number is None else [service.pinned(number)]
        else:
            may = self.gateway.admission.may
            pools = [pool for pool in self.gateway.pools() if may(tenant, pool.service)]
        told = oip.stats(pools)["model_stats"]
        for entry in told:
            del entry["response_stats"]  # empty: no model here answers one request more than once
        return message("ModelStatisticsResponse", model_stats=told)

    async def _index(self, tenant: str, asked: Any) -> Any:
        _no_named_repository(asked)
        return message(
            "RepositoryIndexResponse", models=oip.entries(self.gateway, tenant, only_ready=asked.ready)
        )

    async def _load(self, tenant: str, asked: Any) -> Any:
        await self._controlled(tenant, asked).load(asked.model_name)
        return message("RepositoryModelLoadResponse")

    async def _unload(self, tenant: str, asked: Any) -> Any:
        await self._controlled(tenant, asked).unload(asked.model_name)
        return message("RepositoryModelUnloadResponse")

    def _controlled(self, tenant: str, asked: Any) -> Control:
        _no_named_repository(asked)
        told = dict.fromkeys(asked.parameters)
        return repository.check_control(self.gateway, self.control, tenant, asked.model_name, told)

    async def _system_status(self, tenant: str, asked: Any) -> Any:
        answer = message("SystemSharedMemoryStatusResponse")
        for told in self.regions.of(tenant).status(asked.name):
            answer.regions[told["name"]].CopyFrom(message("SystemRegion", **told))
        return answer

    async def _system_register(self, tenant: str, asked: Any) -> Any:
        self.regions.register(tenant, asked.name, asked.key, asked.offset, asked.byte_size)
        return message("SystemSharedMemoryRegisterResponse")

    async def _system_unregister(self, tenant: str, asked: Any) -> Any:
        self.regions.unregister(tenant, asked.name)
        return message("SystemSharedMemoryUnregisterResponse")

    async def _cuda_status(self, tenant: str, asked: Any) -> Any:
        if asked.name:
            raise RefusedError(404, f"cuda shared memory region {asked.name[:100]} is not registered")
        return message("CudaSharedMemoryStatusResponse")

    async def _cuda_register(self, tenant: str, asked: Any) -> Any:
        raise RefusedError(501, regions.NO_CUDA)

    async def _cuda_unregister(self, tenant: str, asked: Any) -> Any:
        return message("CudaSharedMemoryUnregisterResponse")

    async def _trace(self, tenant: str, asked: Any) -> Any:
        told = {name: list(setting.value) or None for name, setting in asked.settings.items()}
        repository.check_settings("trace", dict(repository.TRACE), told)
        answer = message("TraceSettingResponse")
        for name, value in repository.TRACE.items():
            answer.settings[name].value.extend(value)
        return answer

    async def _log(self, tenant: str, asked: Any) -> Any:
        told = {}
        for name, setting in asked.settings.items():
            arm = setting.WhichOneof("choice")
            told[name] = getattr(setting, arm) if arm else None
        repository.check_settings("log", dict(repository.LOG), told)
        answer = message("LogSettingsResponse")
        for name, value in repository.LOG.items():
            arm = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
            setattr(answer.settings[name], arm, value)
        return answer


def _no_named_repository(asked: Any) -> None:
    if asked.repository_name:
        raise RefusedError(501, "there is one repository, and it has no name")
