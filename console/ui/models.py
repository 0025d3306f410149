"""How one person likes the pages."""

from django.conf import settings
from django.db import models


class Theme(models.TextChoices):
    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


class Density(models.TextChoices):
    COMFORTABLE = "comfortable"
    COMPACT = "compact"


class Preference(models.Model):
    """Rendered by the server with the first byte, so a page never flashes in another theme."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preference")
    theme = models.CharField(max_length=6, choices=Theme, default=Theme.SYSTEM)
    density = models.CharField(max_length=11, choices=Density, default=Density.COMFORTABLE)
    single_keys = models.BooleanField(default=True, help_text="shortcuts of one letter; WCAG 2.1.4")

    def __str__(self) -> str:
        return f"{self.user}: {self.theme}, {self.density}"
