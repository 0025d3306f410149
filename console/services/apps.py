from django.apps import AppConfig


class ServicesConfig(AppConfig):
    name = "console.services"
    label = "services"

    def ready(self) -> None:
        from console.services.models import Service
        from console.tenants.grants import OwnerLookup, register_owner_lookup
        from console.tenants.models import Tenant

        # Tenants stand below services and cannot look a service's owner up by themselves.
        register_owner_lookup(
            OwnerLookup(
                owner_of=lambda name: Tenant.objects.filter(services__name=name).first(),
                owned_by=lambda tenants: list(
                    Service.objects.filter(tenant__in=list(tenants)).values_list("name", flat=True)
                ),
            )
        )
