"""The messages of `inference.GRPCInferenceService` and `grpc.health.v1.Health`, described here and made at import.

A message's name, then its fields as `name=number:type`, `*` before the type for a list, `{type}` for a map from string,
`@choice` behind it for a member of a oneof. Numbers and names are the public protocol's; enums are int32, which is the
same on the wire. Kept in a pool of our own, because a client library in the same process registers the same names.
"""

from importlib import import_module
from typing import Any

# Any: these modules are made at run time as well, and type checkers see nothing in them.
descriptor_pb2: Any = import_module("google.protobuf.descriptor_pb2")
descriptor_pool: Any = import_module("google.protobuf.descriptor_pool")
message_factory: Any = import_module("google.protobuf.message_factory")

_INFERENCE = """
ServerLiveRequest
ServerLiveResponse live=1:bool
ServerReadyRequest
ServerReadyResponse ready=1:bool
ModelReadyRequest name=1:string version=2:string
ModelReadyResponse ready=1:bool
ServerMetadataRequest
ServerMetadataResponse name=1:string version=2:string extensions=3:*string
ModelMetadataRequest name=1:string version=2:string
TensorMetadata name=1:string datatype=2:string shape=3:*int64
ModelMetadataResponse name=1:string versions=2:*string platform=3:string inputs=4:*TensorMetadata
  outputs=5:*TensorMetadata
InferParameter bool_param=1:bool@choice int64_param=2:int64@choice string_param=3:string@choice
  double_param=4:double@choice uint64_param=5:uint64@choice
InferTensorContents bool_contents=1:*bool int_contents=2:*int32 int64_contents=3:*int64
  uint_contents=4:*uint32 uint64_contents=5:*uint64 fp32_contents=6:*float fp64_contents=7:*double
  bytes_contents=8:*bytes
InferInputTensor name=1:string datatype=2:string shape=3:*int64 parameters=4:{InferParameter}
  contents=5:InferTensorContents
InferRequestedOutputTensor name=1:string parameters=2:{InferParameter}
ModelInferRequest model_name=1:string model_version=2:string id=3:string parameters=4:{InferParameter}
  inputs=5:*InferInputTensor outputs=6:*InferRequestedOutputTensor raw_input_contents=7:*bytes
InferOutputTensor name=1:string datatype=2:string shape=3:*int64 parameters=4:{InferParameter}
  contents=5:InferTensorContents
ModelInferResponse model_name=1:string model_version=2:string id=3:string parameters=4:{InferParameter}
  outputs=5:*InferOutputTensor raw_output_contents=6:*bytes
ModelStreamInferResponse error_message=1:string infer_response=2:ModelInferResponse
ModelConfigRequest name=1:string version=2:string
ModelInput name=1:string data_type=2:int32 format=3:int32 dims=4:*int64 is_shape_tensor=6:bool
  optional=8:bool
ModelOutput name=1:string data_type=2:int32 dims=3:*int64 label_filename=4:string is_shape_tensor=6:bool
SpecificVersions versions=1:*int64
ModelVersionPolicy specific=3:SpecificVersions
ModelInstanceGroup name=1:string count=2:int32 gpus=3:*int32 kind=4:int32
ModelDynamicBatching preferred_batch_size=1:*int32 max_queue_delay_microseconds=2:uint64
  preserve_ordering=3:bool
ModelTransactionPolicy decoupled=1:bool
ModelResponseCache enable=1:bool
ModelConfig name=1:string platform=2:string version_policy=3:ModelVersionPolicy max_batch_size=4:int32
  input=5:*ModelInput output=6:*ModelOutput instance_group=7:*ModelInstanceGroup
  default_model_filename=8:string dynamic_batching=11:ModelDynamicBatching backend=17:string
  model_transaction_policy=19:ModelTransactionPolicy response_cache=24:ModelResponseCache
ModelConfigResponse config=1:ModelConfig
ModelStatisticsRequest name=1:string version=2:string
StatisticDuration count=1:uint64 ns=2:uint64
InferStatistics success=1:StatisticDuration fail=2:StatisticDuration queue=3:StatisticDuration
  compute_input=4:StatisticDuration compute_infer=5:StatisticDuration compute_output=6:StatisticDuration
  cache_hit=7:StatisticDuration cache_miss=8:StatisticDuration
InferBatchStatistics batch_size=1:uint64 compute_input=2:StatisticDuration compute_infer=3:StatisticDuration
  compute_output=4:StatisticDuration
MemoryUsage type=1:string id=2:int64 byte_size=3:uint64
ModelStatistics name=1:string version=2:string last_inference=3:uint64 inference_count=4:uint64
  execution_count=5:uint64 inference_stats=6:InferStatistics batch_stats=7:*InferBatchStatistics
  memory_usage=8:*MemoryUsage
ModelStatisticsResponse model_stats=1:*ModelStatistics
ModelRepositoryParameter bool_param=1:bool@choice int64_param=2:int64@choice string_param=3:string@choice
  bytes_param=4:bytes@choice
RepositoryIndexRequest repository_name=1:string ready=2:bool
ModelIndex name=1:string version=2:string state=3:string reason=4:string
RepositoryIndexResponse models=1:*ModelIndex
RepositoryModelLoadRequest repository_name=1:string model_name=2:string
  parameters=3:{ModelRepositoryParameter}
RepositoryModelLoadResponse
RepositoryModelUnloadRequest repository_name=1:string model_name=2:string
  parameters=3:{ModelRepositoryParameter}
RepositoryModelUnloadResponse
SystemSharedMemoryStatusRequest name=1:string
SystemRegion name=1:string key=2:string offset=3:uint64 byte_size=4:uint64
SystemSharedMemoryStatusResponse regions=1:{SystemRegion}
SystemSharedMemoryRegisterRequest name=1:string key=2:string offset=3:uint64 byte_size=4:uint64
SystemSharedMemoryRegisterResponse
SystemSharedMemoryUnregisterRequest name=1:string
SystemSharedMemoryUnregisterResponse
CudaSharedMemoryStatusRequest name=1:string
CudaRegion name=1:string device_id=2:uint64 byte_size=3:uint64
CudaSharedMemoryStatusResponse regions=1:{CudaRegion}
CudaSharedMemoryRegisterRequest name=1:string raw_handle=2:bytes device_id=3:int64 byte_size=4:uint64
CudaSharedMemoryRegisterResponse
CudaSharedMemoryUnregisterRequest name=1:string
CudaSharedMemoryUnregisterResponse
TraceValue value=1:*string
TraceSettingRequest settings=1:{TraceValue} model_name=2:string
TraceSettingResponse settings=1:{TraceValue}
LogValue bool_param=1:bool@choice uint32_param=2:uint32@choice string_param=3:string@choice
LogSettingsRequest settings=1:{LogValue}
LogSettingsResponse settings=1:{LogValue}
"""
_HEALTH = """
HealthCheckRequest service=1:string
HealthCheckResponse status=1:int32
"""
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "double": _Field.TYPE_DOUBLE, "float": _Field.TYPE_FLOAT, "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64, "int32": _Field.TYPE_INT32, "uint32": _Field.TYPE_UINT32,
    "bool": _Field.TYPE_BOOL, "string": _Field.TYPE_STRING, "bytes": _Field.TYPE_BYTES,
}  # fmt: skip


def _describe(package: str, table: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for word in table.split():
        if "=" in word:
            _add_field(package, file.message_type[-1], word)
        else:
            file.message_type.add(name=word)
    return file


def _add_field(package: str, message: Any, told: str) -> None:
    name, _, rest = told.partition("=")
    number, _, kind = rest.partition(":")
    kind, _, choice = kind.partition("@")
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.startswith("{"):
        entry_name = f"{name.title().replace('_', '')}Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add_field(package, entry, "key=1:string")
        _add_field(package, entry, f"value=2:{kind[1:-1]}")
        kind = f"*{message.name}.{entry_name}"
    if kind.startswith("*"):
        field.label = _Field.LABEL_REPEATED
        kind = kind[1:]
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"
    if choice:
        if not message.oneof_decl:
            message.oneof_decl.add(name=choice)
        field.oneof_index = 0


def _made(package: str, table: str) -> dict[str, Any]:
    """Message classes by name. Any: the runtime makes them, no checker can know their fields."""
    pool = descriptor_pool.DescriptorPool()
    file = _describe(package, table)
    pool.AddSerializedFile(file.SerializeToString())
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{message.name}"))
        for message in file.message_type
    }


CLASSES = _made("inference", _INFERENCE)
HEALTH = _made("grpc.health.v1", _HEALTH)
