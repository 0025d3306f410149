from django.apps import AppConfig
from django.db.models.signals import post_migrate


class RolloutsConfig(AppConfig):
    name = "rollouts"

    def ready(self) -> None:
        from console.live import topics  # models exist only now
        from console.ui.board import register
        from rollouts.board import RolloutsSection, may_hear
        from rollouts.strategies import ensure_defaults

        post_migrate.connect(ensure_defaults, sender=self)
        register(RolloutsSection())
        topics.register("rollout", may_hear)
