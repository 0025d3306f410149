"""Shared memory of clients on this machine: named regions of /dev/shm that tensors are read from and written to.

The memory is never mapped here. Its owner may shorten the file at any moment, and whoever has it mapped then dies of
SIGBUS; a read or a write of a shortened file only comes back short. So the kernel copies once, between the client's
file and the worker's slab, and nobody can change bytes after they were checked, because checks look at a copy.
"""

import os
import re
import stat
import time
from typing import Any, cast

from inference.plane import slots
from inference.plane.packing import Buffer, Part, bad, check_packed
from inference.plane.refusals import RefusedError

FOLDER = "/dev/shm"  # noqa: S108 - where POSIX shared memory lives; opened without following links
MAX_REGIONS = 256  # of one tenant; each holds a descriptor
MAX_ALL_REGIONS = 1024
# A region that nothing has touched for so long belongs to a client that is gone; sooner when its file is gone too.
LEASE_SECONDS = 900.0
UNLINKED_SECONDS = 60.0
DISABLED = "client shared memory is disabled"
NO_CUDA = "cuda shared memory of clients is disabled: the plane holds no device"
_KEY = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9._-]{0,250}")
_RESERVED = ("sem.", "pilothouse")


class Region:
    """An open file and a part of it. Requests in hand keep it, so one that is unregistered closes after the last."""

    __slots__ = ("fd", "key", "name", "offset", "size", "used_at")

    def __init__(self, name: str, key: str, fd: int, offset: int, size: int) -> None:
        self.name = name
        self.key = key
        self.fd = fd
        self.offset = offset
        self.size = size
        self.used_at = time.monotonic()

    def __del__(self) -> None:
        os.close(self.fd)


class Shared:
    """An input that lies in a region. As a Buffer it has a length; `read_into` copies it, once, where it is needed.

    broken: the file had become too short, what was read is in part zeros.
    """

    __slots__ = ("at", "broken", "region", "size")

    def __init__(self, region: Region, offset: int, size: int) -> None:
        self.region = region
        self.at = region.offset + offset
        self.size = size
        self.broken = False

    def __len__(self) -> int:
        return self.size

    def read_into(self, target: memoryview) -> None:
        done = 0
        while done < self.size:
            got = os.preadv(self.region.fd, [target[done : self.size]], self.at + done)
            if got == 0:
                self.broken = True
                target[done : self.size] = bytes(self.size - done)
                return
            done += got

    def __bytes__(self) -> bytes:
        data = bytearray(self.size)
        self.read_into(memoryview(data))
        return bytes(data)

    def read(self) -> bytes:
        """Raises RefusedError when the region has become too short."""
        data = bytes(self)
        if self.broken:
            raise bad(f"region {self.region.name} has been shortened by its owner")
        return data


class Place:
    """Where a client wants an output: a region, and at most so many bytes of it."""

    __slots__ = ("at", "region", "size")

    def __init__(self, region: Region, offset: int, size: int) -> None:
        self.region = region
        self.at = region.offset + offset
        self.size = size

    def write(self, name: str, data: Buffer) -> None:
        """Raises RefusedError when it does not fit."""
        if len(data) > self.size:
            raise bad(
                f"output {name} has {len(data)} bytes, region {self.region.name} has room for {self.size}"
            )
        try:
            if os.fstat(self.region.fd).st_size < self.at + len(data):
                raise bad(f"region {self.region.name} has been shortened by its owner")
            view, done = memoryview(data), 0
            while done < len(view):
                done += os.pwritev(self.region.fd, [view[done:]], self.at + done)
        except OSError as error:
            raise RefusedError(
                500, f"region {self.region.name} cannot be written: {error.strerror}"
            ) from None


class TenantRegions:
    """The regions of one tenant by name; nobody else can see, use or drop them."""

    def __init__(self, tenant: str, *, alone: bool) -> None:
        """alone: there is no other tenant, so any key may be registered."""
        self.tenant = tenant
        self._alone = alone
        self.by_name: dict[str, Region] = {}

    def find(self, what: str, parameters: dict[str, Any]) -> tuple[Region, int, int]:
        """Region, offset inside it and bytes, as a tensor's parameters say. Raises RefusedError."""
        name, size = parameters["shared_memory_region"], parameters.get("shared_memory_byte_size")
        offset = parameters.get("shared_memory_offset", 0)
        if type(name) is not str:
            raise bad(f"shared_memory_region of {what} must be the name of a region")
        if type(size) is not int or size < 0:
            raise bad(f"{what} needs shared_memory_byte_size beside shared_memory_region")
        if type(offset) is not int or offset < 0:
            raise bad(f"shared_memory_offset of {what} must be a number of bytes")
        region = self.by_name.get(name)
        if region is None:
            raise RefusedError(404, f"shared memory region {name[:100]} is not registered")
        region.used_at = time.monotonic()
        if offset + size > region.size:
            raise bad(
                f"{what} reaches to byte {offset + size} of region {name[:100]}, which has {region.size}"
            )
        return region, offset, size

    def status(self, name: str) -> list[dict[str, Any]]:
        """All, or the one named. Raises RefusedError."""
        if name and name not in self.by_name:
            raise RefusedError(404, f"shared memory region {name[:100]} is not registered")
        shown = [self.by_name[name]] if name else list(self.by_name.values())
        return [
            {"name": one.name, "key": one.key, "offset": one.offset, "byte_size": one.size} for one in shown
        ]

    def register(self, name: str, key: Any, offset: Any, size: Any) -> None:
        """Raises RefusedError."""
        if type(key) is not str or type(size) is not int or type(offset) is not int:
            raise bad("a region needs key, byte_size and, unless it is 0, offset")
        if not 1 <= len(name) <= 255 or not name.isprintable():
            raise bad("the name of a region has 1 to 255 printable characters")
        if name in self.by_name:
            raise bad(f"shared memory region {name[:100]} is registered already")
        if size < 1 or offset < 0 or offset + size > 1 << 62:
            raise bad("byte_size must be at least 1 and offset at least 0")
        if len(self.by_name) >= MAX_REGIONS:
            raise bad(f"a tenant has at most {MAX_REGIONS} regions")
        self.by_name[name] = Region(name, key, self._open(key, offset + size), offset, size)

    def unregister(self, name: str) -> None:
        """The one named, or all; a name that is not there is no error."""
        names = [name] if name else list(self.by_name)
        for one in names:
            self.by_name.pop(one, None)

    def reap(self, now: float) -> None:
        for name, region in list(self.by_name.items()):
            idle = now - region.used_at
            if idle < UNLINKED_SECONDS:
                continue
            if idle > LEASE_SECONDS or os.fstat(region.fd).st_nlink == 0:
                self.unregister(name)

    def _open(self, key: str, end: int) -> int:
        """A descriptor of the file, checked. Raises RefusedError; what it says is true of /dev/shm, not of us."""
        plain = key.removeprefix("/")
        if _KEY.fullmatch(key) is None or plain.startswith(_RESERVED):
            raise bad(
                f"{key[:100]!r} is no key of shared memory: one plain name, with or without a leading /"
            )
        if not self._alone and not re.match(re.escape(self.tenant) + "[._-]", plain):
            raise bad(
                f"keys of tenant {self.tenant} begin with {self.tenant}- so that nobody reaches another's"
            )
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            fd = os.open(f"{FOLDER}/{plain}", flags)
        except OSError:
            # One sentence whatever the reason, or this would tell which files exist.
            raise bad(f"shared memory {key[:100]} cannot be opened for reading and writing") from None
        told = os.fstat(fd)
        if not stat.S_ISREG(told.st_mode) or told.st_size < end:
            os.close(fd)
            raise bad(f"shared memory {key[:100]} does not hold {end} bytes")
        return fd


class Regions:
    """Of all tenants. enabled: clients may register; off by default, as in Triton since 2.73."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.alone = False
        self._tenants: dict[str, TenantRegions] = {}

    def of(self, tenant: str) -> TenantRegions:
        found = self._tenants.get(tenant)
        if found is None:
            found = TenantRegions(tenant, alone=self.alone)
            if self.enabled:
                self._tenants[tenant] = found
        return found

    def register(self, tenant: str, name: str, key: Any, offset: Any, size: Any) -> None:
        """Raises RefusedError."""
        if not self.enabled:
            raise RefusedError(501, DISABLED)
        if sum(len(own.by_name) for own in self._tenants.values()) >= MAX_ALL_REGIONS:
            raise RefusedError(503, "too many shared memory regions are registered")
        self.of(tenant).register(name, key, offset, size)

    def unregister(self, tenant: str, name: str) -> None:
        """Fine where nothing is registered, also when it could not be: clients do this to begin with."""
        self.of(tenant).unregister(name)

    def keep_only(self, tenants: set[str], *, alone: bool) -> None:
        """New tenants were applied: regions of one that is gone are dropped."""
        self.alone = alone
        for tenant in self._tenants.keys() - tenants:
            self._tenants.pop(tenant).unregister("")

    def tick(self, now: float) -> None:
        for own in self._tenants.values():
            own.reap(now)

    def close(self) -> None:
        self.keep_only(set(), alone=False)


def source(own: TenantRegions | None, part: Part, parameters: dict[str, Any], elements: int) -> Buffer:
    """The data of an input in shared memory, checked. Small ones, and those whose values are looked at, are copied now.

    Raises RefusedError.
    """
    if own is None:
        raise bad(f"input {part.name}: {DISABLED}")
    if "binary_data_size" in parameters:
        raise bad(f"input {part.name} has a shared memory region and binary_data_size")
    shared = Shared(*own.find(f"input {part.name}", parameters))
    size = part.datatype.size
    if not size or part.looked_at or shared.size < slots.LARGE:
        data = shared.read()
        check_packed(part, data, elements)
        return data
    if shared.size != elements * size:
        raise bad(f"input {part.name} has {shared.size} bytes, its shape needs {elements * size}")
    return cast(Buffer, shared)
