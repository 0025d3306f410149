from django.apps import AppConfig
from django.db.models.signals import post_migrate


class RolloutsConfig(AppConfig):
    name = "rollouts"

    def ready(self) -> None:
        from rollouts.strategies import ensure_defaults  # models exist only now

        post_migrate.connect(ensure_defaults, sender=self)
