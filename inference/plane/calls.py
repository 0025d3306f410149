"""An inference request on its way through the plane, the same for every protocol."""

import time

from inference.plane.admission import Grant
from inference.plane.batcher import Job
from inference.plane.gateway import Gateway
from inference.plane.pool import Pool

CLIENT_LEFT = 499  # nginx's code for a client that did not wait; counted, never sent


class Call(Job):
    """A request that reached a version; holds its place in the quota until it ends, once.

    Protocols override `admitted`, which reads the request and submits it, `answered` and `refused`.
    """

    __slots__ = ("entered", "gateway", "grant", "pool")

    protocol = ""

    def __init__(self, gateway: Gateway, tenant: str, grant: Grant, pool: Pool, arrived: float) -> None:
        # What Job.__init__ does, without a call: one is made for each request.
        self.tenant = tenant
        self.arrived = arrived
        self.deaths = 0
        self.alone = False
        self.done = True
        self.gateway = gateway
        self.grant = grant
        self.pool = pool
        self.entered = False

    def start(self) -> bool:
        """Whether to go on with `admitted` at once. Raises RefusedError."""
        self.grant.enter(self.arrived)
        self.entered = True
        return True

    def admitted(self) -> None:
        raise NotImplementedError

    def settle(self, status: int) -> None:
        if self.entered:
            self.entered = False
            self.grant.leave()
        self.pool.meter.answered(self.tenant, self.protocol, status, time.monotonic() - self.arrived)
