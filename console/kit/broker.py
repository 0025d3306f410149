"""The console's own Redis connection: bounded in time, one for each process and address."""

from functools import lru_cache

import redis
from django.conf import settings

CONTROLLER_SEEN_KEY = (
    "ph:controller:seen"  # seconds since the epoch, written by console.kit.tasks.controller_seen
)


def client() -> redis.Redis:
    """Raises redis.RedisError within about two seconds when Redis is away."""
    return _client(settings.REDIS_URL)


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=2, health_check_interval=30)
