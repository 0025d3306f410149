from django.apps import AppConfig


class UiConfig(AppConfig):
    name = "console.ui"
    label = "ui"

    def ready(self) -> None:
        from console.ui import board
        from console.ui.sections import HousePages

        board.register(HousePages())
