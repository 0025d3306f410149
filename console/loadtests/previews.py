"""What a load test would do, in numbers; also the answer to `?dry_run=true`."""

from console.kit.previews import Preview
from console.loadtests.actions import Wanted
from console.metrics.choose import source
from console.metrics.source import Indicator, Query, Value
from console.tenants.models import Quota


def of_start(asked: Wanted) -> Preview:
    """Rate, duration and total, what traffic it comes on top of, and which quota it meets."""
    where = f"version {asked.version} of {asked.service}" if asked.version else str(asked.service)
    sentence = f"Sends {where} {asked.plan.sentence}, as the tenant {asked.tenant}."
    if asked.plan.warmup_seconds:
        sentence += f" {asked.plan.warmup_seconds} s of warm-up come before and are not counted."
    return Preview(sentence, (traffic_now(asked.service.name), *quota_of(asked)))


def traffic_now(service: str) -> str:
    match source().read(Query(Indicator.REQUEST_RATE, service)):
        case Value(value=rate):
            return f"{service} answers about {rate:.3g} requests/s now; this comes on top"
        case _:
            return f"how much {service} answers now is not known"


def quota_of(asked: Wanted) -> list[str]:
    """Said before, because a run that meets its quota measures the quota."""
    quota = Quota.objects.filter(tenant=asked.tenant, service=asked.service.name).first()
    if quota is None:
        return []
    found = []
    if quota.requests_per_second is not None:
        beyond = asked.plan.mode == "closed" or asked.plan.rate > quota.requests_per_second
        refused = "; what goes beyond is refused with 429" if beyond else ""
        found.append(f"the quota of {asked.tenant} is {quota.requests_per_second:g} requests/s{refused}")
    if quota.concurrency is not None and asked.plan.connections > quota.concurrency:
        found.append(f"the quota of {asked.tenant} is {quota.concurrency} requests at once")
    return found
