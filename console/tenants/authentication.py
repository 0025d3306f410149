"""REST tokens: `Authorization: Bearer pht_...`. Sessions are DRF's own, with its CSRF check."""

from datetime import timedelta

from django.db.models import Q
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from console.kit import clock
from console.tenants import tokens
from console.tenants.models import Token
from console.tenants.permissions import TokenBearer, of_token

CHALLENGE = 'Bearer realm="pilothouse"'

_LENGTH_MAXIMUM = 200
_USE_NOTED_EVERY = timedelta(minutes=1)


class TokenAuthentication(BaseAuthentication):
    """`request.user` becomes a TokenBearer, `request.auth` the Token."""

    def authenticate(self, request: Request) -> tuple[TokenBearer, Token] | None:
        scheme, _, rest = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        secret = rest.strip().decode("latin-1")
        if tokens.is_inference_key(secret):
            raise AuthenticationFailed(
                "This is an inference key (ph_...): it opens the plane, not the console. Use a REST token (pht_...)."
            )
        token = _find(secret)
        actor = of_token(token)
        if actor.role_in(token.tenant_id) is None:
            raise AuthenticationFailed(
                "Whoever made this token left the tenant; an admin can make a new one."
            )
        _note_use(token)
        return TokenBearer(token, actor), token

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


def _find(secret: str) -> Token:
    """The live token behind the secret. Known or not, the work is one hash and one look at a unique index.

    What differs in time is only whether the hash exists, and who can make a given hash appear needs the secret itself.
    """
    digest = tokens.digest(secret[:_LENGTH_MAXIMUM])
    token = Token.objects.select_related("tenant", "created_by").filter(sha256=digest).first()
    if token is None or len(secret) > _LENGTH_MAXIMUM:
        raise AuthenticationFailed("This token is not known.")
    if token.is_revoked:
        raise AuthenticationFailed("This token was revoked.")
    if token.is_expired:
        raise AuthenticationFailed("This token has expired.")
    return token


def _note_use(token: Token) -> None:
    """At most one write a minute: a busy pipeline must not turn each of its reads into a write."""
    now = clock.now()
    if token.last_used_at is not None and now - token.last_used_at < _USE_NOTED_EVERY:
        return
    Token.objects.filter(pk=token.pk).filter(
        Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - _USE_NOTED_EVERY)
    ).update(last_used_at=now)
