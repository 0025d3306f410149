from django.apps import AppConfig


class CliConfig(AppConfig):
    name = "console.cli"
    label = "cli"
