"""Secrets of tokens: how they are made, hashed and told apart."""

import hashlib
import secrets

REST_PREFIX = "pht"
INFERENCE_PREFIX = "ph"

# 256 random bits, so a plain SHA-256 is enough: no dictionary reaches them.
_SECRET_BYTES = 32
_HINT_LENGTH = 10


def mint(prefix: str) -> str:
    """A new secret such as `pht_3q2-7w...`. prefix: REST_PREFIX or INFERENCE_PREFIX."""
    return f"{prefix.rstrip('_')}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def digest(secret: str) -> str:
    """SHA-256 in hex: the only form of a secret that is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def hint_of(secret: str) -> str:
    """The first characters, to tell tokens apart on a page; 220 of 256 bits stay unknown."""
    return secret[:_HINT_LENGTH]


def is_inference_key(secret: str) -> bool:
    return secret.startswith(f"{INFERENCE_PREFIX}_")
