from django.apps import AppConfig


class LoadTestsConfig(AppConfig):
    name = "console.loadtests"
    label = "loadtests"

    def ready(self) -> None:
        from console.live import topics  # models exist only now
        from console.loadtests.board import LoadTestsSection, may_hear
        from console.ui.board import register

        register(LoadTestsSection())
        topics.register("loadtest", may_hear)
