"""One settings file for every process; each value that differs between installations comes from config.env."""

import secrets
from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from config import env

BASE_DIR = Path(__file__).resolve().parent.parent
HOME = env.folder("PILOTHOUSE_HOME", str(BASE_DIR / "var"))
DEBUG = env.flag("DEBUG")


def _secret_key() -> str:
    """From the environment, else made once and kept in the home folder."""
    given = env.secret("SECRET_KEY")
    if given:
        return given
    path = HOME / "secret_key"
    if not path.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(50), encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


SECRET_KEY = _secret_key()
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ("127.0.0.1", "localhost", "[::1]"))
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "template_partials",
    "csp",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "console.kit",
    "console.audit",
    "console.tenants",
    "console.services",
    "console.live",
    "console.ui",
    "console.loadtests",
    "console.cli",
    "inference",
    "rollouts",
]

MIDDLEWARE = [
    "console.kit.middleware.RequestContext",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.ui.frame.frame",
            ],
            "builtins": ["template_partials.templatetags.partials", "console.ui.templatetags.ui"],
        },
    }
]


def _database() -> dict[str, Any]:
    url = env.secret("DATABASE_URL", f"sqlite:///{HOME / 'db.sqlite3'}")
    try:
        database: dict[str, Any] = dict(dj_database_url.parse(url))
    except ValueError as error:
        raise ImproperlyConfigured(f"DATABASE_URL: {error}") from None
    if database["ENGINE"] == "django.db.backends.sqlite3":
        Path(database["NAME"]).parent.mkdir(parents=True, exist_ok=True)
        database["OPTIONS"] = {
            # IMMEDIATE: a transaction that reads and then writes would else fail at once on a busy file.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
        # In memory, threads share one cache whose locks do not wait: tests of races need a file, as in production.
        database["TEST"] = {"NAME": str(HOME / "test.sqlite3")}
    else:
        database.setdefault("OPTIONS", {})["connect_timeout"] = 5
        database["CONN_HEALTH_CHECKS"] = True
    return database


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.secret("REDIS_URL", "redis://127.0.0.1:6379/0")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "ph:live"},
    }
}

PROMETHEUS_URL = env.text("PROMETHEUS_URL")  # empty: the embedded signal source
# Each a host or host:port; empty: web gates ask nobody.
WEB_GATE_HOSTS = frozenset(env.words("PILOTHOUSE_WEB_GATE_HOSTS"))
NODE_NAME = env.text("PILOTHOUSE_NODE_NAME", "node-1")
PLANE_URL = env.text("PILOTHOUSE_PLANE_URL", "http://127.0.0.1:8080")  # how others reach the plane
PLANE_HOST = env.text("PILOTHOUSE_PLANE_HOST", "127.0.0.1")  # where it listens; the port is that of PLANE_URL

AUTHENTICATION_BACKENDS = ["console.tenants.logins.ThrottledBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "ui:login"
LOGIN_REDIRECT_URL = "ui:overview"
LOGOUT_REDIRECT_URL = "ui:login"

METRICS_TOKEN = env.secret("METRICS_TOKEN")  # empty: /metrics is as open as the address it is bound to
# What one request may carry; a model with its external data arrives as an upload.
MAX_BODY_BYTES = env.number("MAX_BODY_BYTES", 2 << 20, minimum=1024)
MAX_UPLOAD_BYTES = env.number("MAX_UPLOAD_BYTES", 4 << 30, minimum=1024)
CSRF_FAILURE_VIEW = "console.kit.pages.csrf_failed"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = HOME / "staticfiles"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_SSL_REDIRECT = env.flag("SECURE_SSL_REDIRECT")
SECURE_HSTS_SECONDS = env.number("SECURE_HSTS_SECONDS", 0)
# Subdomains and browsers' preload lists concern the owner of the domain, not one of its hosts.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.flag("COOKIE_SECURE")
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        "frame-ancestors": [NONE],
        "form-action": [SELF],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "console.tenants.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_PAGINATION_CLASS": "console.kit.pagination.NewestFirst",
    "EXCEPTION_HANDLER": "console.kit.problems.handle",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "PAGE_SIZE": 50,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Pilothouse",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "APPEND_COMPONENTS": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "SECURITY": [{"token": []}],
    "AUTHENTICATION_WHITELIST": ["rest_framework.authentication.SessionAuthentication"],
    # Fields of one name with different choices: what generated clients shall call each.
    "ENUM_NAME_OVERRIDES": {
        "LoadTestState": "console.loadtests.states.State",
        "MemberRole": "console.tenants.models.Role",
        "PlacementRole": "inference.models.PlacementRole",
        "RolloutState": "rollouts.states.State",
        "TokenState": [(state, state) for state in ("active", "expired", "revoked")],
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "console.kit.request_ids.RequestIdFilter"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request_id"]}
    },
    "root": {"handlers": ["stderr"], "level": env.text("LOG_LEVEL", "INFO")},
    # Ticks come every second: a line for each would fill a disk and hide what matters. Failures are errors.
    "loggers": {
        name: {"level": "WARNING"} for name in ("celery.worker.strategy", "celery.app.trace", "celery.beat")
    },
}
