"""Addresses of the frame and of the pages that belong to no single app."""

from django.urls import path

from console.ui.views import activity, jump, overview, patterns, quotas, session, settings, tenants

app_name = "ui"

_TENANT = "settings/tenants/<slug:slug>"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("activity", activity.activity, name="activity"),
    path("activity/export/<slug:kind>", activity.export, name="export_activity"),
    path("jump", jump.jump, name="jump"),
    path("patterns", patterns.patterns, name="patterns"),
    path("rail", session.rail, name="rail"),
    path("login", session.SignIn.as_view(), name="login"),
    path("logout", session.SignOut.as_view(), name="logout"),
    path("tenant", session.choose, name="choose_tenant"),
    path("theme", session.set_theme, name="set_theme"),
    path("settings", settings.settings, name="settings"),
    path("settings/preferences", session.set_preferences, name="set_preferences"),
    path("settings/accounts/new", settings.new_account, name="new_account"),
    path("settings/tenants/new", settings.new_tenant, name="new_tenant"),
    path(_TENANT, tenants.tenant, name="tenant"),
    path(f"{_TENANT}/edit", settings.edit_tenant, name="edit_tenant"),
    path(f"{_TENANT}/members/new", tenants.new_member, name="new_member"),
    path(f"{_TENANT}/members/<str:username>/change", tenants.change_member, name="change_member"),
    path(f"{_TENANT}/members/<str:username>/remove", tenants.remove_member, name="remove_member"),
    path(f"{_TENANT}/tokens/new", tenants.new_token, name="new_token"),
    path(f"{_TENANT}/tokens/<int:pk>/rotate", tenants.rotate_token, name="rotate_token"),
    path(f"{_TENANT}/tokens/<int:pk>/revoke", tenants.revoke_token, name="revoke_token"),
    path("settings/quotas/new", quotas.new_quota, name="new_quota"),
    path("settings/quotas/<slug:slug>/<str:service>/edit", quotas.edit_quota, name="edit_quota"),
    path("settings/quotas/<slug:slug>/<str:service>/remove", quotas.remove_quota, name="remove_quota"),
]
