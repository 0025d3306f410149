from django.apps import AppConfig

from console.kit.events import on_change


class InferenceConfig(AppConfig):
    name = "inference"

    def ready(self) -> None:
        from console.live import topics  # all of these read models, which exist only now
        from console.ui.board import register
        from inference import board, snapshot

        # Tenants, keys and quotas are part of what nodes must know.
        on_change("identity", snapshot.publish)
        register(board.ServicesSection())
        register(board.NodesSection())
        topics.register("service", board.may_hear_service)
        topics.register("node", board.may_hear_node)
