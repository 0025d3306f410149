"""Inference requests of the Open Inference Protocol: from a body to packed tensors that fit the contract.

A request's inputs, datatypes, inner dimensions and output wishes are studied once; the next request that looks the same
finds the result by key and only its data is checked.
"""

import json
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

import orjson

from inference.contract import Contract, TensorSpec
from inference.plane import plainly
from inference.plane.datatypes import DATATYPES, Datatype, pack_bytes
from inference.plane.extensions import Wish, wish_of
from inference.plane.fields import (
    UnusualError,
    binary_wish,
    look_of_outputs,
    shape_of,
    timeout_of,
    uneven,
)
from inference.plane.packing import (
    MAX_RANK,
    Buffer,
    Part,
    bad,
    binary_size,
    check_packed,
    check_range,
    from_json,
)
from inference.plane.plans import Parsed, Plan, Wire
from inference.plane.refusals import RefusedError
from inference.plane.regions import TenantRegions, source

MAX_JSON_BYTES = 16 << 20
MAX_TENSORS = 256
MAX_PLANS = 1024
MAX_ELEMENTS = 1 << 40
MAX_KNOWN = 256
MAX_KNOWN_BYTES = 4096


# The same of a JSON part that was seen before: plan, rows, bytes of each input, timeout.
_Known = tuple[Plan, int, tuple[int, ...], float | None]


class Codec:
    def __init__(self, contract: Contract, *, batched: bool) -> None:
        """batched: rows of several requests may be joined; then every first dimension is rows."""
        self.batched = batched
        self.max_rows = contract.max_batch_size
        self.inputs = {tensor.name: tensor for tensor in contract.public_inputs}
        self.outputs = {tensor.name: tensor for tensor in contract.public_outputs}
        hook = contract.spec.hooks.preprocess
        self.instead_of = {hook.input: hook.output} if hook else {}
        self.needed = frozenset(tensor.name for tensor in contract.spec.inputs)
        self._plans: dict[Any, Plan] = {}
        self._wires: dict[Any, Wire] = {}
        self._known: dict[Buffer, _Known] = {}
        self._plain = plainly.Shelf(self.max_rows)

    def fit(self, message: Any) -> tuple[Plan, int]:
        """The plan for a request in the form of JSON, and its rows (-1 when the model does not batch); no data is read.

        Raises RefusedError.
        """
        return self._plan(message)

    def parse(self, body: bytes, header_length: int | None, own: TenantRegions | None = None) -> Parsed:
        """header_length: value of Inference-Header-Content-Length, None without. own: the tenant's shared memory.

        Raises RefusedError.
        """
        if header_length is None:
            plain = self._plain.find(body)
            if plain is not None:
                return plain
            head: Buffer = body
        elif header_length == 0:
            return self._raw(body)
        elif header_length > len(body):
            raise bad(
                f"inference-header-content-length {header_length} is beyond the body's {len(body)} bytes"
            )
        else:
            head = body[:header_length]
            known = self._known.get(head)
            if known is not None:
                return self._again(known, body, header_length)
        if len(head) > MAX_JSON_BYTES:
            raise RefusedError(
                413, f"the JSON part has {len(head)} bytes, {MAX_JSON_BYTES} are taken: send binary tensors"
            )
        try:
            message = orjson.loads(head)
        except orjson.JSONDecodeError as error:
            raise bad(f"the request is not JSON: {error}") from None
        plan, rows = self._plan(message)
        inputs = message["inputs"]
        if header_length is None:
            buffers, end = self._buffers(plan, rows, inputs, body, len(body), own)
        else:
            buffers, end = self._buffers(plan, rows, inputs, body, header_length, own)
        if end != len(body):
            raise bad(f"unexpected additional input data: {len(body) - end} bytes after the last tensor")
        parameters = message.get("parameters")
        timeout = timeout_of(parameters) if parameters else None
        name = message.get("id", "")
        if type(name) is not str or len(name) > plainly.MAX_ID:
            raise bad(f"id must be a string of at most {plainly.MAX_ID} characters")
        if header_length is None:
            if self.batched:
                self._plain.learn(message, plan)
        elif not name:
            self._remember(head, plan, rows, inputs, timeout)
        return plan, rows, buffers, name, timeout

    def _remember(
        self, head: Buffer, plan: Plan, rows: int, inputs: Sequence[Any], timeout: float | None
    ) -> None:
        """Clients of binary tensors send the same JSON again and again: it need not be read again."""
        fixed = all(
            part.datatype.size
            and "binary_data_size" in (tensor.get("parameters") or ())
            and "data" not in tensor
            for part, tensor in zip(plan.parts, inputs, strict=True)
        )
        if fixed and len(head) <= MAX_KNOWN_BYTES:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            sizes = tuple(tensor["parameters"]["binary_data_size"] for tensor in inputs)
            self._known[bytes(head)] = plan, rows, sizes, timeout

    def _again(self, known: _Known, body: bytes, at: int) -> Parsed:
        plan, rows, sizes, timeout = known
        missing = at + sum(sizes) - len(body)
        if missing > 0:
            raise bad(f"the binary part ends early: expecting {missing} additional bytes")
        if missing:
            raise bad(f"unexpected additional input data: {-missing} bytes after the last tensor")
        buffers: list[Buffer] = [b""] * len(sizes)
        for part, position, size in zip(plan.parts, plan.order, sizes, strict=True):
            buffer: Buffer = body[at : at + size] if size < 65536 else memoryview(body)[at : at + size]
            at += size
            if part.looked_at:
                check_packed(part, buffer, size // part.datatype.size)
                check_range(part, buffer)
            buffers[position] = buffer
        return plan, rows, buffers, "", timeout

    def _plan(self, message: Any) -> tuple[Plan, int]:
        """The plan for a message of this look, and its rows (-1 when the model does not batch)."""
        key: Any = None
        plan = None
        try:
            rows, key = self._look(message)
            plan = self._plans.get(key)
        except (UnusualError, KeyError, TypeError, IndexError, AttributeError):
            rows, key = 0, None  # something is wrong or unusual; studying it tells which
        if plan is None:
            plan = self._study(message, key)
            rows = self._rows(message["inputs"]) if self.batched else -1
        elif self.batched and not (type(rows) is int and 0 <= rows <= self.max_rows):
            self._study(message, None)
            rows = self._rows(message["inputs"])
        return plan, rows

    def _look(self, message: Any) -> tuple[Any, Any]:
        """Rows as told, and everything of a request's form that decides its plan or that it is refused."""
        inputs, parameters, wanted = message["inputs"], message.get("parameters"), message.get("outputs")
        default = parameters.get("binary_data_output", False) if parameters is not None else False
        if type(default) is not bool:
            raise UnusualError
        key: list[Any] = [default, look_of_outputs(wanted)]
        if not self.batched:
            key.extend([(tensor["name"], tensor["datatype"], *shape_of(tensor)) for tensor in inputs])
            return -1, tuple(key)
        rows = inputs[0]["shape"][0]
        for tensor in inputs:
            shape = shape_of(tensor)
            if shape[0] != rows:
                raise UnusualError
            key.append((tensor["name"], tensor["datatype"], *shape[1:]))
        return rows, tuple(key)

    def _rows(self, inputs: Sequence[Any]) -> int:
        rows = inputs[0]["shape"][0]
        if any(tensor["shape"][0] != rows for tensor in inputs):
            raise uneven(inputs)
        if rows > self.max_rows:
            raise bad(f"a request of {rows} rows is above the model's max_batch_size of {self.max_rows}")
        return int(rows)

    def _study(self, message: Any, key: Any) -> Plan:
        """Everything that can be wrong but for the data. Raises RefusedError naming the field."""
        if type(message) is not dict:
            raise bad("the request must be a JSON object")
        inputs = message.get("inputs")
        if type(inputs) is not list or not 1 <= len(inputs) <= MAX_TENSORS:
            raise bad(f"inputs must be a list of 1 to {MAX_TENSORS} tensors")
        parameters = message.get("parameters")
        if parameters is not None and type(parameters) is not dict:
            raise bad("parameters must be an object")
        told = [self._told(tensor, index) for index, tensor in enumerate(inputs)]
        names = [name for name, _, _ in told]
        if len(set(names)) != len(names):
            raise bad(f"input {next(name for name in names if names.count(name) > 1)} is given twice")
        covered = {self.instead_of.get(name, name) for name in names}
        missing = self.needed - covered
        if missing:
            raise bad(f"input {', '.join(sorted(missing))} is missing")
        if len(covered) != len(names):
            raise bad(f"give either {' or '.join(chain(*self.instead_of.items()))}, not both")
        ordered = sorted(range(len(names)), key=lambda index: names[index])
        skip = 1 if self.batched else 0
        wire_inputs = tuple((told[i][0], told[i][1], told[i][2][skip:]) for i in ordered)
        outputs, binary, wishes = self._wishes(message)
        wire = self._wire(wire_inputs, outputs)
        parts = tuple(
            self._part(self.inputs[name], datatype, prod(shape[skip:])) for name, datatype, shape in told
        )
        place = {index: position for position, index in enumerate(ordered)}
        heads = self._heads(outputs, wishes)
        plan = Plan(wire, tuple(place[i] for i in range(len(names))), parts, binary, heads, wishes)
        if key is not None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _told(self, tensor: Any, index: int) -> tuple[str, Datatype, tuple[int, ...]]:
        if type(tensor) is not dict or type(tensor.get("name")) is not str:
            raise bad(f"inputs[{index}] must be an object with a name")
        name: str = tensor["name"]
        spec = self.inputs.get(name)
        if spec is None:
            raise bad(f"unexpected input {name[:100]}; the model takes {', '.join(self.inputs)}")
        if tensor.get("datatype") != spec.datatype:
            told = str(tensor.get("datatype"))[:20]
            raise bad(f"input {name} has datatype {told}, the contract says {spec.datatype}")
        shape = tensor.get("shape")
        if (
            type(shape) is not list
            or len(shape) > MAX_RANK
            or not all(type(d) is int and d >= 0 for d in shape)
        ):
            raise bad(f"input {name} needs a shape: a list of sizes that are not negative")
        fits = len(shape) == len(spec.shape) and all(
            dim in (-1, told) for dim, told in zip(spec.shape, shape, strict=True)
        )
        if not fits or prod(shape) > MAX_ELEMENTS:
            raise bad(f"input {name} has shape {shape}, the contract says {list(spec.shape)}")
        parameters = tensor.get("parameters")
        if parameters is not None and type(parameters) is not dict:
            raise bad(f"parameters of input {name} must be an object")
        return name, DATATYPES[spec.datatype], tuple(shape)

    def _wishes(
        self, message: Any
    ) -> tuple[tuple[str, ...], tuple[bool | None, ...], tuple[Wish | None, ...]]:
        """The outputs of the answer in the model's order, which of them as binary, and what else is wished of them."""
        parameters = message.get("parameters") or {}
        default = parameters.get("binary_data_output", False)
        if type(default) is not bool:
            raise bad("binary_data_output must be true or false")
        wanted = message.get("outputs")
        if wanted is None or wanted == []:
            return tuple(self.outputs), tuple(default for _ in self.outputs), ()
        if type(wanted) is not list or len(wanted) > MAX_TENSORS:
            raise bad(f"outputs must be a list of at most {MAX_TENSORS}")
        binary: dict[str, bool | None] = {}
        wishes: dict[str, Wish | None] = {}
        for output in wanted:
            name = output.get("name") if type(output) is dict else None
            if type(name) is not str or name not in self.outputs:
                raise bad(f"unexpected output {str(name)[:100]}; the model has {', '.join(self.outputs)}")
            if name in binary:
                raise bad(f"output {name} is asked for twice")
            binary[name] = binary_wish(name, output.get("parameters"))
            wish = wishes[name] = wish_of(name, self.outputs[name].datatype, output.get("parameters") or {})
            if wish is not None and wish.region is not None:
                binary[name] = None
        names = tuple(name for name in self.outputs if name in binary)
        more = tuple(wishes[name] for name in names) if any(wishes.values()) else ()
        return names, tuple(binary[name] for name in names), more

    def _wire(
        self, inputs: tuple[tuple[str, Datatype, tuple[int, ...]], ...], outputs: tuple[str, ...]
    ) -> Wire:
        if len(self._wires) >= MAX_PLANS:
            self._wires.clear()
            self._plans.clear()
        return self._wires.setdefault((inputs, outputs), Wire(self.batched, inputs, outputs))

    def plan_like(self, wire: Wire) -> Plan | None:
        """How this version reads a request that another one has read; None when it takes other inputs.

        It answers the same outputs, so it must have them all.
        """
        fits = wire.batched == self.batched and all(
            name in self.inputs
            and self.inputs[name].datatype == datatype.name
            and self._fits(self.inputs[name], dims, skip=1 if wire.batched else 0)
            for name, datatype, dims in wire.inputs
        )
        covered = {self.instead_of.get(name, name) for name, _, _ in wire.inputs}
        if not fits or self.needed - covered or any(name not in self.outputs for name in wire.outputs):
            return None
        return Plan(self._wire(wire.inputs, wire.outputs), (), (), (), ())

    @staticmethod
    def _fits(spec: TensorSpec, dims: tuple[int, ...], *, skip: int) -> bool:
        inner = spec.shape[skip:]
        return len(inner) == len(dims) and all(d in (-1, told) for d, told in zip(inner, dims, strict=True))

    def _part(self, spec: TensorSpec, datatype: Datatype, elements: int) -> Part:
        utf8 = datatype.name == "BYTES" and spec.name not in self.instead_of
        looked_at = datatype.name == "BOOL" or spec.minimum is not None or spec.maximum is not None
        return Part(spec.name, datatype, elements, spec.minimum, spec.maximum, utf8, looked_at)

    def _heads(self, names: Sequence[str], wishes: Sequence[Wish | None]) -> tuple[bytes, ...]:
        """Each output's JSON up to its shape."""
        classified = {name for name, wish in zip(names, wishes, strict=False) if wish and wish.classes}
        kinds = ["BYTES" if name in classified else self.outputs[name].datatype for name in names]
        return tuple(
            b'{"name":%s,"datatype":"%s","shape":[' % (json.dumps(name).encode(), kind.encode())
            for name, kind in zip(names, kinds, strict=True)
        )

    def _buffers(
        self,
        plan: Plan,
        rows: int,
        inputs: Sequence[Any],
        body: bytes,
        at: int,
        own: TenantRegions | None,
    ) -> tuple[list[Buffer], int]:
        """Packed data of each input in the wire's order, and where the binary part ends."""
        buffers: list[Buffer] = [b""] * len(inputs)
        literals: bool | None = None
        for part, position, tensor in zip(plan.parts, plan.order, inputs, strict=True):
            elements = part.elements * rows if rows >= 0 else part.elements
            parameters = tensor.get("parameters")
            data = tensor.get("data")
            if type(parameters) is dict and "shared_memory_region" in parameters:
                if data is not None:
                    raise bad(f"input {part.name} has data and a shared memory region")
                buffer: Buffer = source(own, part, parameters, elements)
            elif type(parameters) is dict and "binary_data_size" in parameters:
                size = binary_size(part.name, parameters, data)
                if size > len(body) - at:
                    raise bad(f"input {part.name}: expecting {size - len(body) + at} additional bytes")
                buffer = body[at : at + size] if size < 65536 else memoryview(body)[at : at + size]
                at += size
                check_packed(part, buffer, elements)
            elif type(data) is list:
                if literals is None:  # a search of the text is cheaper than a look at each value
                    literals = b"true" in body or b"false" in body
                buffer = from_json(part, data, elements, booleans=literals)
            else:
                raise bad(f"input {part.name} needs exactly one of data and parameters.binary_data_size")
            if part.looked_at:
                check_range(part, buffer)
            buffers[position] = buffer
        return buffers, at

    def _raw(self, body: bytes) -> Parsed:
        """A body without JSON: the whole of it is the one input, and the answer is all binary."""
        names = list(self.instead_of) or list(self.needed)
        spec = self.inputs[names[0]]
        item = DATATYPES[spec.datatype].size
        shape = [1 if self.batched and index == 0 else dim for index, dim in enumerate(spec.shape)]
        if item == 0:
            shape = [1 if dim == -1 else dim for dim in shape]
        if len(names) != 1 or shape.count(-1) > 1 or (item == 0 and prod(shape) != 1):
            raise bad("a raw binary request needs a model with one input and at most one free dimension")
        if item == 0:
            body = pack_bytes([body])
        elif -1 in shape:
            row = prod(dim for dim in shape if dim != -1) * item
            shape[shape.index(-1)] = len(body) // row if row else 0
        tensor = {"name": spec.name, "datatype": spec.datatype, "shape": shape}
        plan, rows = self._plan({"inputs": [tensor], "parameters": {"binary_data_output": True}})
        part = plan.parts[0]
        check_packed(part, body, part.elements * rows if rows >= 0 else part.elements)
        check_range(part, body)
        return plan, rows, [body], "", None
