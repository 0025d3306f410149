"""Sealing of secrets that must be read again. The key comes from SECRET_KEY; each purpose has its own."""

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class SealBroken(ValueError):
    """Sealed under another SECRET_KEY or purpose, or altered since."""


def seal(purpose: str, plain: bytes) -> str:
    return _box(purpose, settings.SECRET_KEY).encrypt(plain).decode()


def unseal(purpose: str, sealed: str) -> bytes:
    """Raises SealBroken."""
    try:
        return _box(purpose, settings.SECRET_KEY).decrypt(sealed.encode())
    except InvalidToken:
        raise SealBroken(purpose) from None


@lru_cache(maxsize=32)
def _box(purpose: str, secret_key: str) -> Fernet:
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=f"pilothouse:{purpose}".encode()).derive(
        secret_key.encode()
    )
    return Fernet(base64.urlsafe_b64encode(key))
