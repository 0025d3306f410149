"""What a codec says of a request must not depend on the requests it has seen before."""

from typing import Any

import orjson
import pytest

from inference.contract import Contract, parse_contract
from inference.plane.refusals import RefusedError
from inference.plane.requests import Codec

CONTRACT = """\
apiVersion: pilothouse.dev/v1
kind: ModelContract
metadata: {name: sum}
spec:
  inputs:
    - {name: a, datatype: FP32, shape: [-1, 1]}
    - {name: b, datatype: INT32, shape: [-1, 1]}
  outputs: [{name: y, datatype: FP32, shape: [-1, 1]}]
  parameters: {batching: {max_batch_size: 4}}
"""
A = {"name": "a", "shape": [1, 1], "datatype": "FP32", "data": [0.5]}
B = {"name": "b", "shape": [1, 1], "datatype": "INT32", "data": [1]}
GOOD: dict[str, Any] = {"inputs": [A, B]}
GOODS = (
    GOOD,
    {**GOOD, "parameters": {}},
    {**GOOD, "parameters": {"binary_data_output": True}},
    {**GOOD, "parameters": {"binary_data_output": False}},
    {**GOOD, "outputs": []},
    {**GOOD, "outputs": [{"name": "y"}]},
    {**GOOD, "outputs": [{"name": "y", "parameters": {}}]},
    {**GOOD, "outputs": [{"name": "y", "parameters": {"binary_data": True}}]},
    {**GOOD, "outputs": [{"name": "y", "parameters": {"binary_data": False}}]},
    {"inputs": [{**A, "parameters": {}}, B]},
)
NOTHING: dict[str, Any] = {}
NOT_OBJECTS: tuple[Any, ...] = (0, 1, 0.0, "", "x", False, True, [], [1])


def first(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{**A, **changes}, B]}


def second(**changes: Any) -> dict[str, Any]:
    return {"inputs": [A, {**B, **changes}]}


BADS = (
    *[(first(shape=shape), "input a needs a shape") for shape in ([1, 1.0], [1, True], [1.0, 1], [True, 1])],
    *[(second(shape=shape), "input b needs a shape") for shape in ([1, 1.0], [1, True], [1.0, 1], [True, 1])],
    *[(first(shape=shape), "input a needs a shape") for shape in ({"1": 1}, "11", None, 1)],
    *[(first(parameters=wrong), "parameters of input a must be an object") for wrong in NOT_OBJECTS],
    *[(second(parameters=wrong), "parameters of input b must be an object") for wrong in NOT_OBJECTS],
    *[({**GOOD, "parameters": wrong}, "parameters must be an object") for wrong in NOT_OBJECTS],
    *[
        ({**GOOD, "parameters": {"binary_data_output": wrong}}, "binary_data_output must be true or false")
        for wrong in (0, 1, 0.0, 1.0, None, "")
    ],
    *[({**GOOD, "outputs": wrong}, "outputs must be a list") for wrong in (0, False, "", NOTHING, 1)],
    *[
        (
            {**GOOD, "outputs": [{"name": "y", "parameters": wrong}]},
            "parameters of output y must be an object",
        )
        for wrong in NOT_OBJECTS
    ],
    *[
        (
            {**GOOD, "outputs": [{"name": "y", "parameters": {"binary_data": wrong}}]},
            "binary_data of output y",
        )
        for wrong in (0, 1, 0.0, 1.0, None)
    ],
    *[(first(data=[wrong]), "input a has a boolean, which is no FP32") for wrong in (True, False)],
    *[(second(data=[wrong]), "input b has a boolean, which is no INT32") for wrong in (True, False)],
    (first(data=[[True]]), "input a has a boolean"),
)


@pytest.fixture
def contract() -> Contract:
    return parse_contract(CONTRACT)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("seen", [(), GOODS], ids=["fresh", "after good requests"])
def test_a_wrong_request_is_refused_whatever_was_seen_before(
    contract: Contract, batched: bool, seen: tuple[dict[str, Any], ...]
) -> None:
    codec = Codec(contract, batched=batched)
    for message in (*seen, *seen):
        codec.parse(orjson.dumps(message), None)
    for message, words in BADS:
        with pytest.raises(RefusedError) as caught:
            codec.parse(orjson.dumps(message), None)
        assert caught.value.status == 400, message
        assert words in str(caught.value), message


def test_a_repeated_binary_request_is_checked_like_the_first(contract: Contract) -> None:
    codec = Codec(contract, batched=True)

    def parse(**changes: Any) -> None:
        told = {"name": "a", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
        other = {**told, "name": "b", "datatype": "INT32"}
        head = orjson.dumps({"inputs": [{**told, **changes}, other]})
        codec.parse(head + bytes(8), len(head))

    for _ in range(3):
        parse()
        for wrong in ({"shape": [1, True]}, {"shape": [1.0, 1]}, {"parameters": {"binary_data_size": 4.0}}):
            with pytest.raises(RefusedError) as caught:
                parse(**wrong)
            assert caught.value.status == 400


def test_good_requests_of_one_look_share_a_wire(contract: Contract) -> None:
    codec = Codec(contract, batched=True)
    assert len({id(codec.parse(orjson.dumps(GOOD), None)[0].wire) for _ in range(3)}) == 1
