"""What a first visitor finds: a real model in three versions, two client tenants and a little traffic."""

SERVICE = "file-type"
