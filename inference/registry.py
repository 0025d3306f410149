"""Registering a model: files into the blob store, signature and contract read and checked, one immutable row.

A folder or a single .onnx file is copied into our hands first (inference.intake); nothing is kept when it is refused.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from console.kit.errors import Invalid
from inference import contract as contracts
from inference.blobs import BlobStore, contract_bytes, digest_of
from inference.contract import Contract, ContractError
from inference.graph import GraphError, Signature, read_signature, signature_to_json
from inference.intake import CONTRACT_BYTES, CONTRACT_NAMES, GRAPH, Staged, stage
from inference.protocol import FileRef


@dataclass(frozen=True, slots=True)
class Registered:
    """What a version's row is made of. inferred: nobody wrote the contract, it came from the graph."""

    files: tuple[FileRef, ...]
    contract: dict[str, Any]
    signature: dict[str, Any]
    digest: str
    inferred: bool


def store() -> BlobStore:
    return BlobStore(settings.HOME / "blobs")


def take_in(
    source: Path, *, name: str, contract: str | bytes | None = None, most_bytes: int | None = None
) -> Registered:
    """Check a model and keep its files. contract: YAML text; None: contract.yaml of the folder, else inferred.

    Raises Invalid, with each wrong file or contract field named.
    """
    blobs = store()
    limits = {} if most_bytes is None else {"most_bytes": most_bytes}
    with stage(source, blobs, **limits) as staged:
        signature = _signature(staged)
        text = contract if contract is not None else _own_contract(staged)
        checked = _contract(text, signature, staged, name)
        as_json = contracts.to_json(checked)
        staged.keep(blobs)
    return Registered(
        files=staged.files,
        contract=as_json,
        signature=signature_to_json(signature),
        digest=digest_of(staged.files, contract_bytes(as_json)),
        inferred=text is None,
    )


def _signature(staged: Staged) -> Signature:
    try:
        return read_signature(staged.folder)
    except GraphError as error:
        raise Invalid(f"The graph is refused: {error}.", fields={GRAPH: str(error)}) from None


def _own_contract(staged: Staged) -> bytes | None:
    sizes = {ref.path: ref.size for ref in staged.files}
    for name in CONTRACT_NAMES:
        if name in sizes:
            if sizes[name] > CONTRACT_BYTES:
                raise Invalid(
                    "The contract is too large.", fields={name: f"more than {CONTRACT_BYTES} bytes"}
                )
            return (staged.folder / name).read_bytes()
    return None


def _contract(text: str | bytes | None, signature: Signature, staged: Staged, name: str) -> Contract:
    try:
        if text is None:
            return contracts.infer_contract(signature, name)
        contract = contracts.parse_contract(text)
        contracts.check_against(contract, signature, staged.folder)
    except ContractError as error:
        fields = {path or "contract": why for path, why in error.fields.items()}
        raise Invalid("The contract is refused.", fields=fields) from None
    return contract
