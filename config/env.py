"""Typed readers of environment variables. A wrong value stops the start and names itself."""

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def flag(name: str, default: bool = False) -> bool:
    raw = os.environ.get(name)
    if raw is None:
        return default
    if raw.lower() in _TRUE:
        return True
    if raw.lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}={raw!r} is not a yes or a no; use 1 or 0.")


def number(name: str, default: int, *, minimum: int = 0) -> int:
    raw = os.environ.get(name)
    if raw is None:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r} is not a whole number.") from None
    if value < minimum:
        raise ImproperlyConfigured(f"{name}={value} is below {minimum}.")
    return value


def words(name: str, default: tuple[str, ...] = ()) -> list[str]:
    raw = os.environ.get(name)
    return list(default) if raw is None else [word.strip() for word in raw.split(",") if word.strip()]


def folder(name: str, default: str) -> Path:
    path = Path(os.environ.get(name, default)).expanduser().resolve()
    if path.exists() and not path.is_dir():
        raise ImproperlyConfigured(f"{name}={path} is not a folder.")
    return path


def secret(name: str, default: str = "") -> str:
    """Read NAME, or the file that NAME_FILE points at. Both at once is an error."""
    file_name = os.environ.get(f"{name}_FILE")
    if file_name is None:
        return os.environ.get(name, default)
    if name in os.environ:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set; keep one.")
    try:
        return Path(file_name).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE={file_name} cannot be read: {error.strerror}.") from None
