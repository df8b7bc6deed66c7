"""Settings. What differs between machines comes from the environment (`.env.example`)."""

import sys
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from csp.constants import NONCE, NONE, SELF
from django.utils.translation import gettext_lazy as _

from config import embedded, env, gateways

BASE_DIR = embedded.BASE_DIR
VAR_DIR = embedded.var_dir()

# --- what is deployed -------------------------------------------------------------------------
DEBUG = env.flag("DEBUG", False)
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")
TRUSTED_PROXIES = env.integer("TRUSTED_PROXIES", 0, high=10)  # reverse proxies in front of us
HTTPS = env.flag("HTTPS", False)  # the site is reached by https (directly, or through a proxy)
METRICS_TOKEN = env.text("METRICS_TOKEN")
# The client library reads this variable itself; here it is checked.
METRICS_DIR = env.folder("PROMETHEUS_MULTIPROC_DIR")

# --- back ends --------------------------------------------------------------------------------
_database = env.database("DATABASE_URL", f"sqlite:///{VAR_DIR / 'db.sqlite3'}")
EMBEDDED_DATABASE = _database.get("ENGINE") == "django.db.backends.sqlite3"
_up = embedded.running() if not env.is_set("REDIS_URL") else None
# Empty = embedded, and no `up` is running: whoever needs Redis then gets a clear error.
REDIS_URL = env.url("REDIS_URL", _up["redis_url"] if _up else "", ("redis", "rediss"))
REDIS_PREFIX = env.text("REDIS_PREFIX", "seckill:")
REDIS_PROTOCOL = int(env.choice("REDIS_PROTOCOL", "3", ("2", "3")))
REDIS_TIMEOUT = env.seconds("REDIS_TIMEOUT", 1.0, high=2.5)  # one attempt of one call
BROKER_TIMEOUT = env.seconds("BROKER_TIMEOUT", 2.0, high=10)
DATABASE_TIMEOUT = env.seconds("DATABASE_TIMEOUT", 2.5, high=60)

# --- the sale ---------------------------------------------------------------------------------
SOLD_OUT_CHANNEL = env.choice("SOLD_OUT_CHANNEL", "broadcast", ("broadcast", "zookeeper"))
ZOOKEEPER_HOSTS = env.text("ZOOKEEPER_HOSTS")
ZOOKEEPER_USER = env.text("ZOOKEEPER_USER")
ZOOKEEPER_PASSWORD = env.text("ZOOKEEPER_PASSWORD")
SOLD_OUT_TTL = env.seconds("SOLD_OUT_TTL", 2, high=60)  # a process trusts its own mark so long
PAYMENT_WINDOW = env.seconds("PAYMENT_WINDOW", 15 * 60, low=1)
SWEEP_INTERVAL = env.seconds("SWEEP_INTERVAL", 5, high=300)
WORKER_DEAF_AFTER = env.seconds("WORKER_DEAF_AFTER", 30, low=1, high=3600)
ADMIT_RETRY_AFTER = env.seconds("ADMIT_RETRY_AFTER", 10)
ADMIT_GIVE_UP_AFTER = env.seconds("ADMIT_GIVE_UP_AFTER", 300)
CAPTCHA = env.choice("CAPTCHA", "altcha", ("altcha", "off"))
PURCHASE_RATE = env.rate("PURCHASE_RATE", "10/10s")  # purchases per buyer and sale
PAYMENT_PROVIDERS = env.words("PAYMENT_PROVIDERS", ["sandbox"])
PAYMENT_TIMEOUT = env.seconds("PAYMENT_TIMEOUT", 2, high=2.5)  # one call of a gateway
PAYMENT_QUERY_AFTER = env.seconds("PAYMENT_QUERY_AFTER", 30)  # without a webhook, we ask
SITE_URL = env.text("SITE_URL").rstrip("/")  # how gateways reach us
ALIPAY_APP_ID = env.text("ALIPAY_APP_ID")
ALIPAY_PRIVATE_KEY_FILE = env.text("ALIPAY_PRIVATE_KEY_FILE")  # ours, to sign with
ALIPAY_PUBLIC_KEY_FILE = env.text("ALIPAY_PUBLIC_KEY_FILE")  # Alipay's, to check with
ALIPAY_SANDBOX = env.flag("ALIPAY_SANDBOX", False)
STRIPE_SECRET_KEY = env.text("STRIPE_SECRET_KEY")
STRIPE_WEBHOOK_SECRET = env.text("STRIPE_WEBHOOK_SECRET")
ORDER_BATCH = env.integer("ORDER_BATCH", 200, low=1, high=500)  # purchases in one message
CURRENCY = "CNY"
WEB_THREADS = env.integer("WEB_THREADS", 8, low=1, high=256)  # threads of one web process

if SOLD_OUT_CHANNEL == "zookeeper" and not ZOOKEEPER_HOSTS:
    env.problems.append("ZOOKEEPER_HOSTS: not set (SOLD_OUT_CHANNEL is zookeeper)")
if ZOOKEEPER_USER and not ZOOKEEPER_PASSWORD:
    env.problems.append("ZOOKEEPER_PASSWORD: not set (ZOOKEEPER_USER is)")
gateways.check(PAYMENT_PROVIDERS)
for _name, _hosts in (("ALLOWED_HOSTS", ALLOWED_HOSTS),):
    if any("/" in host for host in _hosts):
        env.problems.append(f"{_name}: names hosts, not addresses with a scheme or path")
for _origin in CSRF_TRUSTED_ORIGINS:
    if not _origin.startswith(("http://", "https://")):
        env.problems.append(f"CSRF_TRUSTED_ORIGINS: {_origin!r} has no scheme")


# --- secrets: generated for the embedded database only, which never leaves this machine -----------
def _kept(name: str) -> str:
    try:
        return embedded.secret(name)
    except OSError as error:
        problem = f"VAR_DIR: nothing can be kept in {VAR_DIR}: {error.strerror}"
        if problem not in env.problems:
            env.problems.append(problem)
        return ""


if EMBEDDED_DATABASE:
    SECRET_KEY = env.text("SECRET_KEY") or _kept("secret_key")
    PAYMENT_WEBHOOK_SECRET = env.text("PAYMENT_WEBHOOK_SECRET") or _kept("webhook_secret")
else:
    SECRET_KEY = env.required("SECRET_KEY", "needed with a database of your own")
    PAYMENT_WEBHOOK_SECRET = env.text("PAYMENT_WEBHOOK_SECRET")
    if "sandbox" in PAYMENT_PROVIDERS and not PAYMENT_WEBHOOK_SECRET:
        env.required("PAYMENT_WEBHOOK_SECRET", "needed by the sandbox payment provider")
SECRET_KEY_FALLBACKS = env.words("SECRET_KEY_FALLBACKS")

# --- Django -----------------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "ninja",
    "inventory",
    "orders",
    "seckill",
]
MIDDLEWARE = [
    "seckill.middleware.RequestIdMiddleware",
    "seckill.middleware.ProblemMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "seckill.middleware.PermissionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
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
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES: dict[str, dict[str, Any]] = {"default": _database}
if EMBEDDED_DATABASE:
    _database["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 5,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    _database["CONN_MAX_AGE"] = None
else:
    _timeout_ms = int(DATABASE_TIMEOUT * 1000)
    _database["OPTIONS"] = {
        "connect_timeout": 2,
        "options": f"-c statement_timeout={_timeout_ms} -c lock_timeout={_timeout_ms}"
        # No transaction waits for anything but the database; a process that stands still in one
        # would hold up all the others, who need its rows.
        " -c idle_in_transaction_session_timeout=10000",
        # A peer that vanished without a word is noticed within seconds, not hours.
        "keepalives": 1,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 8000,
    } | _database.get("OPTIONS", {})
    _database["CONN_MAX_AGE"] = 600
    _database["CONN_HEALTH_CHECKS"] = True

PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"

_redis_options = {
    "socket_timeout": REDIS_TIMEOUT,
    "socket_connect_timeout": REDIS_TIMEOUT,
    "socket_keepalive": True,
    "health_check_interval": 30,
    "protocol": REDIS_PROTOCOL,
}
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL or "redis://127.0.0.1:1/0",
        "KEY_PREFIX": f"{REDIS_PREFIX}cache",
        "TIMEOUT": 300,
        "OPTIONS": _redis_options | {"serializer": "config.serializers.JSONSerializer"},
    }
}
SESSION_ENGINE = "seckill.session_store"
SESSION_COOKIE_AGE = int(timedelta(days=14).total_seconds())
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "seckill.errors.csrf_failure"

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "inventory.redis_clients.ChannelLayer",
        "CONFIG": {
            # Never a bare address: the client's default timeout of 5 s kills idle sockets.
            "hosts": [
                {
                    "address": REDIS_URL or "redis://127.0.0.1:1/0",
                    "socket_timeout": 15,
                    "socket_connect_timeout": 3,
                    "socket_keepalive": True,
                    "health_check_interval": 30,
                    "protocol": REDIS_PROTOCOL,
                }
            ],
            "prefix": f"{REDIS_PREFIX}ws",
        },
    }
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / app / "locale" for app in ("seckill", "orders", "inventory")]
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = VAR_DIR / "static"
# The command that collects must write the manifest, also when there is none yet.
_collected = "collectstatic" in sys.argv or (STATIC_ROOT / "staticfiles.json").exists()
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "config.storage.ModuleStorage"
        if _collected
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
MEDIA_ROOT = VAR_DIR / "media"
MEDIA_URL = "/media/"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000

# --- security headers ---------------------------------------------------------------------------
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "worker-src": [SELF],
        # A browser follows the redirect after "pay" only to where a form may lead.
        "form-action": [
            SELF,
            *gateways.origins(PAYMENT_PROVIDERS, alipay_sandbox=ALIPAY_SANDBOX),
        ],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = int(timedelta(days=365).total_seconds()) if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
if HTTPS and TRUSTED_PROXIES:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# --- Celery -------------------------------------------------------------------------------------
CELERY_BROKER_URL = env.url(
    "CELERY_BROKER_URL", REDIS_URL, ("amqp", "amqps", "pyamqp", "redis", "rediss")
)
_amqp = urlsplit(CELERY_BROKER_URL).scheme in ("amqp", "amqps", "pyamqp")
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = (
    {
        # Confirms alone hang for ever on a paused broker; the two socket timeouts bound them.
        "confirm_publish": True,
        "confirm_timeout": BROKER_TIMEOUT,
        "read_timeout": BROKER_TIMEOUT,
        "write_timeout": BROKER_TIMEOUT,
        "connect_timeout": BROKER_TIMEOUT,
        "max_retries": 1,
    }
    if _amqp
    else {
        # An unacknowledged message comes back after this time, also a timer that only waits.
        "visibility_timeout": max(3600, int(4 * PAYMENT_WINDOW)),
        "global_keyprefix": f"{REDIS_PREFIX}celery:",
        "fanout_prefix": True,
        "fanout_patterns": True,
        "socket_timeout": 15,
        "socket_connect_timeout": BROKER_TIMEOUT,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "max_retries": 1,
    }
)
CELERY_BROKER_CONNECTION_TIMEOUT = BROKER_TIMEOUT
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_BROKER_HEARTBEAT = 10
# Without a second try beat would keep a broken connection for ever, and nothing was swept any more.
CELERY_TASK_PUBLISH_RETRY = True
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 2, "interval_start": 0, "interval_step": 0.2}
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_RESULT_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False  # The journal brings it back, and counts attempts.
CELERY_TASK_DEFAULT_QUEUE = "orders"
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_TASK_TIME_LIMIT = 120
CELERY_TASK_SOFT_TIME_LIMIT = 100
CELERY_WORKER_PREFETCH_MULTIPLIER = 2
CELERY_WORKER_ETA_TASK_LIMIT = 20_000
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_MAX_TASKS_PER_CHILD = 100_000
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 30.0
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_EVENT_QUEUE_EXPIRES = 60.0
CELERY_BEAT_SCHEDULER = "config.beat:SteadyScheduler"
CELERY_BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    name: {"task": f"orders.{name}", "schedule": every}
    for name, every in {
        "recover_reservations": SWEEP_INTERVAL,
        "sweep_expired": SWEEP_INTERVAL,
        "sweep_releases": SWEEP_INTERVAL,
        "settle_captures": SWEEP_INTERVAL,
        "reconcile_sales": 6 * SWEEP_INTERVAL,
    }.items()
}
# Those that a gateway may keep waiting: one that nobody took in time is dropped, the next comes.
CELERY_BEAT_SCHEDULE |= {
    name: {
        "task": f"orders.{name}",
        "schedule": SWEEP_INTERVAL,
        # By the broker's clock: `expires` would compare that of beat with that of the worker.
        "options": {"expiration": 10 + SWEEP_INTERVAL},
    }
    for name in ("ask_gateways", "send_refunds", "send_sandbox_notices")
}
# Timers wait here for the payment window; RabbitMQ closes a channel that holds a message for
# 30 minutes, so a longer window relies on the sweep alone.
TIMER_LONGEST = 20 * 60

# --- logs ---------------------------------------------------------------------------------------
LOG_LEVEL = env.choice("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "format": "{asctime} {levelname:<7} {name} {message}",
            "style": "{",
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {"django.server": {"level": "WARNING"}},
}

env.finish()
