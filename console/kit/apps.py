from django.apps import AppConfig


class KitConfig(AppConfig):
    name = "console.kit"
    label = "kit"
