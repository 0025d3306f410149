"""Announcements leave after the commit, and a broker that is away costs nothing but freshness."""

import pytest
from django.db import transaction

from console.kit import events


@pytest.mark.django_db(transaction=True)
def test_a_topic_is_published_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[tuple[str, int]] = []
    monkeypatch.setattr(events, "push", lambda topic, version: pushed.append((topic, version)))
    with transaction.atomic():
        events.publish("rollout:42", 7)
        assert pushed == []
    assert pushed == [("rollout:42", 7)]


def test_a_push_tells_whether_it_went_out(settings: object) -> None:
    assert events.push("rollout:42", 7) is True
    setattr(  # noqa: B010  the fixture's type is private to pytest-django
        settings,
        "CHANNEL_LAYERS",
        {
            "default": {
                "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
                "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]},
            }
        },
    )
    assert events.push("rollout:42", 7) is False


def test_group_names_hold_no_colon() -> None:
    assert events.group_of("rollout:42") == "topic.rollout.42"
