from django.apps import AppConfig


class ServicesConfig(AppConfig):
    name = "console.services"
    label = "services"

    def ready(self) -> None:
        from console.tenants.grants import register_owner_lookup
        from console.tenants.models import Tenant

        # Tenants stand below services and cannot look a service's owner up by themselves.
        register_owner_lookup(lambda name: Tenant.objects.filter(services__name=name).first())
