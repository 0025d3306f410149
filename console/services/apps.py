from django.apps import AppConfig


class ServicesConfig(AppConfig):
    name = "console.services"
    label = "services"
