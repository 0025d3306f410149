"""Sign in, sign out, and what the frame remembers of a person: theme, tenant, keys."""

from typing import TYPE_CHECKING

from django import forms
from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from console.tenants import logins
from console.ui.access import is_fragment, page
from console.ui.models import Density, Preference, Theme
from console.ui.scope import choose_tenant


class SignIn(LoginView):
    """Attempts are bounded by console.tenants.logins; this page only says so."""

    template_name = "login.html"
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        wait = logins.wait_seconds(self.request, form.data.get("username", "")[:150])
        if wait:
            minutes = -(-wait // 60)
            form.errors.clear()
            form.add_error(None, f"Too many attempts. Try again in {minutes} min.")
        answer = super().form_invalid(form)
        answer.status_code = 429 if wait else 422
        return answer


class SignOut(LogoutView):
    next_page = "ui:login"


@page("GET", "HEAD")
def rail(request: HttpRequest) -> HttpResponse:
    """The rail's lines alone, for its own refresh."""
    return render(request, "ui/rail.html")


@page("POST")
def choose(request: HttpRequest) -> HttpResponse:
    choose_tenant(request, request.POST.get("tenant", "")[:63])
    return HttpResponseRedirect(_next(request))


@page("POST")
def set_theme(request: HttpRequest) -> HttpResponse:
    theme = request.POST.get("theme", "")
    if theme in Theme.values:
        Preference.objects.update_or_create(user=_person(request), defaults={"theme": theme})
    return HttpResponse(status=204) if is_fragment(request) else HttpResponseRedirect(_next(request))


if TYPE_CHECKING:
    _OfPreference = forms.ModelForm[Preference]
else:  # Django's forms take no parameters at run time
    _OfPreference = forms.ModelForm


class PreferenceForm(_OfPreference):
    class Meta:
        model = Preference
        fields = ["theme", "density", "single_keys"]
        labels = {"single_keys": "Shortcuts of one letter"}
        help_texts = {"single_keys": "j, k, g and the like. Ctrl K and / keep working."}


@page("POST")
def set_preferences(request: HttpRequest) -> HttpResponse:
    known = Preference.objects.filter(user=_person(request)).first() or Preference(user=_person(request))
    form = PreferenceForm(request.POST, instance=known)
    if form.is_valid():
        form.save()
        messages.success(request, "Your preferences are saved.", extra_tags="ok")
    else:
        messages.error(request, "These preferences cannot be saved.", extra_tags="fail")
    return HttpResponseRedirect(reverse("ui:settings"))


def preference_form(request: HttpRequest) -> PreferenceForm:
    known = Preference.objects.filter(user=_person(request)).first()
    return PreferenceForm(instance=known or Preference(theme=Theme.SYSTEM, density=Density.COMFORTABLE))


def _person(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # @page lets nobody else in
    return request.user


def _next(request: HttpRequest) -> str:
    """Back to where the form was, never to another host."""
    wanted = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()})
    return wanted if safe and wanted.startswith("/") else reverse("ui:overview")
