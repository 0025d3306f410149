from django.apps import AppConfig

from console.kit.events import on_change


class InferenceConfig(AppConfig):
    name = "inference"

    def ready(self) -> None:
        from inference import snapshot  # models may be imported only now

        # Tenants, keys and quotas are part of what nodes must know.
        on_change("identity", snapshot.publish)
