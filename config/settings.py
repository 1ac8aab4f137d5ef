"""All settings, typed, in one file. The environment is read here and nowhere else.

Unset DATABASE_URL and REDIS_URL mean the embedded default: SQLite and a Redis child process under DATA_DIR.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import tempfile
from pathlib import Path

from celery.schedules import crontab
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from config.base.env import (
    celery_broker,
    core_database,
    data_directory,
    database_from_url,
    envaddress,
    envaddresses,
    envbool,
    envchoice,
    envint,
    envkeys,
    envlimits,
    envlist,
    envnetworks,
    envnumbers,
    envprefix,
    envredis,
    envstr,
    envzone,
    redis_with_database,
    serves,
    sqlite_database,
)

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = data_directory("DATA_DIR", BASE_DIR / "var")

# --- identity of the installation -------------------------------------------------------------------------------


def _secret_key() -> str:
    given = envstr("SECRET_KEY")
    if given:
        return given
    if envstr("DATABASE_URL"):
        raise ImproperlyConfigured("SECRET_KEY is not set; with DATABASE_URL set it must come from the environment")
    path = DATA_DIR / "secret_key"
    try:
        # O_EXCL: two processes that start at once agree on whichever key was written first.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        key = secrets.token_urlsafe(48)
        file.write(key)
    return key


SECRET_KEY = _secret_key()
# Former keys. Those who were erased under one are known by it, so it must stay here.
SECRET_KEY_FALLBACKS = envlist("SECRET_KEY_FALLBACKS")
DEBUG = envbool("DEBUG", False)
ALLOWED_HOSTS = envlist("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = envlist("CSRF_TRUSTED_ORIGINS")
# Proxies whose X-Forwarded-For is believed: `10.0.0.0/8,2001:db8::/32`, and `unix` for a socket without addresses.
TRUSTED_PROXIES, TRUST_UNIX_SOCKET = envnetworks("TRUSTED_PROXIES")
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "config.admin_site.XinghuoAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "ninja",
    "guard",
    "memory",
    "risk",
    "config",
]

MIDDLEWARE = [
    "config.middleware.TraceMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "config.middleware.ConsoleMiddleware",
]

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
                "django.template.context_processors.i18n",
            ],
        },
    },
]

# --- databases --------------------------------------------------------------------------------------------------

EMBEDDED_DATABASE = not envstr("DATABASE_URL")
# Seconds that MySQL may leave a statement unanswered; None (no bound) for commands of manage.py.
DATABASE_TIMEOUT = envint("DATABASE_TIMEOUT", 10, low=1, high=3600) if serves(sys.argv) else None
DATABASES: dict[str, dict[str, object]] = {
    "default": sqlite_database(str(DATA_DIR / "xinghuo.sqlite3"))
    if EMBEDDED_DATABASE
    else {
        **database_from_url("DATABASE_URL", envstr("DATABASE_URL"), timeout=DATABASE_TIMEOUT),
        "CONN_MAX_AGE": envint("CONN_MAX_AGE", 60, low=0),
        "CONN_HEALTH_CHECKS": True,
    },
}
CORE_IS_EXTERNAL = bool(envstr("CORE_DATABASE_URL"))
CORE_CONNECT_TIMEOUT = envint("CORE_CONNECT_TIMEOUT", 2, low=1, high=60)  # seconds
# Of one statement. Commands of manage.py read whole tables, and are given more unless the variable says otherwise.
CORE_STATEMENT_TIMEOUT_MS = envint(
    "CORE_STATEMENT_TIMEOUT_MS", 3000 if serves(sys.argv) else 300_000, low=10, high=3_600_000
)
# An external core tells nobody what changes: a round over its customers begins so many seconds after the last began.
# Readiness warns where what is older than so many seconds may not have been seen yet.
CORE_ROUND_SECONDS = envint("CORE_ROUND_SECONDS", 300, low=5, high=86_400)
READY_MAX_CORE_ROUND = float(envint("READY_MAX_CORE_ROUND", 3600, low=60))
# Seconds for which, with the core away, an advisor's last load of a snapshot stands for the assignment; 0: refused.
SNAPSHOT_GRACE_SECONDS = envint("SNAPSHOT_GRACE_SECONDS", 3600, low=0, high=86_400)
if CORE_IS_EXTERNAL:
    DATABASES["core"] = {
        **core_database(
            "CORE_DATABASE_URL", envstr("CORE_DATABASE_URL"), CORE_CONNECT_TIMEOUT, CORE_STATEMENT_TIMEOUT_MS
        ),
        "CONN_MAX_AGE": envint("CONN_MAX_AGE", 60, low=0),
        "CONN_HEALTH_CHECKS": True,
    }
DATABASE_ROUTERS = ["memory.core.router.CoreRouter"]

# --- Redis ------------------------------------------------------------------------------------------------------


def _embedded_redis_socket() -> Path:
    path = DATA_DIR / "redis" / "redis.sock"
    # sockaddr_un holds 108 bytes; a deep data directory gets a socket of its own in the temporary directory.
    if len(os.fsencode(path)) <= 100:
        return path
    digest = hashlib.sha256(os.fsencode(DATA_DIR)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"xinghuo-{digest}" / "redis.sock"


EMBEDDED_REDIS = not envredis("REDIS_URL")
EMBEDDED_REDIS_SOCKET = _embedded_redis_socket()
REDIS_URL = envredis("REDIS_URL") or f"unix://{EMBEDDED_REDIS_SOCKET}?db=0"
CACHE_REDIS_URL = envredis("CACHE_REDIS_URL") or redis_with_database(REDIS_URL, 1)
CHANNEL_REDIS_URL = envredis("CHANNEL_REDIS_URL") or redis_with_database(REDIS_URL, 2)
CELERY_BROKER_URL = celery_broker(envstr("CELERY_BROKER_URL") or redis_with_database(REDIS_URL, 3))
REDIS_KEY_PREFIX = envprefix("REDIS_KEY_PREFIX")
REDIS_TIMEOUT = envint("REDIS_TIMEOUT_MS", 2000, low=50) / 1000  # seconds, connect and each command

CACHES = {
    "default": {
        "BACKEND": "config.cache.PrefixCache",
        "LOCATION": CACHE_REDIS_URL,
        "KEY_PREFIX": REDIS_KEY_PREFIX,
        "OPTIONS": {"SOCKET_TIMEOUT": REDIS_TIMEOUT, "SOCKET_CONNECT_TIMEOUT": REDIS_TIMEOUT},
    }
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {
            "hosts": [CHANNEL_REDIS_URL],
            "prefix": f"{REDIS_KEY_PREFIX}:asgi" if REDIS_KEY_PREFIX else "asgi",
            "expiry": 60,
        },
    }
}

# Seconds that the oldest unsaved message, and the oldest unsent alert event, may be old before /health/ready says no.
READY_MAX_WORKER_LAG = float(envint("READY_MAX_WORKER_LAG", 30, low=1))
READY_MAX_OUTBOX_LAG = float(envint("READY_MAX_OUTBOX_LAG", 30, low=1))

# --- Celery: draining and publishing have queues of their own, which a long job cannot starve ---------------------

CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_IGNORE_RESULT = True
# Early: no task needs to be handed out twice, for beat asks again each second, and the work itself is claimed in
# streams and tables. A late acknowledgement is one more thing that a broker going away can break.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Only tasks that are acknowledged late would be cancelled, and there are none: said, so that celery does not warn.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # for ever: an outage of any length ends with the workers at work
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{REDIS_KEY_PREFIX}:celery:" if REDIS_KEY_PREFIX else "celery:",
    "visibility_timeout": 3600,
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    # A publisher that cannot reach the broker gives up at once: beat polls for what it wanted done.
    "max_retries": 0,
}
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_ROUTES = {
    "memory.sessions.reconcile": {"queue": "default"},  # long, and must not be in the drain's way
    "memory.sessions.*": {"queue": "persist"},
    # Short, and not to wait for the drain, which stays for most of its second: what it deletes is stale until then.
    "memory.profiles.*": {"queue": "publish"},
    "memory.erasure.*": {"queue": "default"},
    # Short by its budget: catching up after an outage takes turns with the events.
    "guard.audit.*": {"queue": "publish"},
    "guard.admission.*": {"queue": "publish"},
    "guard.prune": {"queue": "default"},
    "config.prune": {"queue": "default"},
    "risk.feed.*": {"queue": "publish"},
    # They wait for other people's servers: nothing else is to wait with them.
    "risk.notify.*": {"queue": "notify"},
}
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "celerybeat-schedule")
# `expires`: a tick that waited behind an outage is dropped, for the next one does the same work.
CELERY_BEAT_SCHEDULE = {
    "drain-messages": {"task": "memory.sessions.drain", "schedule": 1.0, "options": {"expires": 5}},
    "reconcile-sessions": {"task": "memory.sessions.reconcile", "schedule": 3600.0, "options": {"expires": 1800}},
    "reattach-sessions": {"task": "memory.sessions.reattach", "schedule": 1.0, "options": {"expires": 5}},
    "sweep-profile-changes": {"task": "memory.profiles.sweep", "schedule": 0.5, "options": {"expires": 5}},
    "expire-drafts": {"task": "memory.profiles.expire_drafts", "schedule": 60.0, "options": {"expires": 120}},
    "finish-erasures": {"task": "memory.erasure.finish", "schedule": 3.0, "options": {"expires": 10}},
    # A row whose nudge is lost waits this long at most, half of what an alert may take; an idle look is one query.
    "publish-outbox": {"task": "risk.feed.publish", "schedule": 0.5, "options": {"expires": 5}},
    "seal-audit": {"task": "guard.audit.seal", "schedule": 1.0, "options": {"expires": 5}},
    "prune-guard": {"task": "guard.prune", "schedule": 600.0, "options": {"expires": 300}},
    # From 2 to 5 in the morning in China, when nobody works; what one run leaves the next one takes.
    "prune": {"task": "config.prune", "schedule": crontab(minute="*/10", hour="18-20"), "options": {"expires": 300}},
    "tell-budgets": {"task": "guard.admission.tell_budgets", "schedule": 0.5, "options": {"expires": 5}},
    "sweep-blocks": {"task": "guard.admission.sweep", "schedule": 5.0, "options": {"expires": 15}},
    "scan-trades": {"task": "risk.rules.scan", "schedule": 5.0, "options": {"expires": 30}},
    "escalate-alerts": {"task": "risk.alerts.escalate", "schedule": 10.0, "options": {"expires": 30}},
    "scan-conduct": {"task": "risk.conduct.scan", "schedule": 5.0, "options": {"expires": 30}},
    "run-backtests": {"task": "risk.rules.backtests", "schedule": 2.0, "options": {"expires": 5}},
    "send-notifications": {"task": "risk.notify.work", "schedule": 1.0, "options": {"expires": 5}},
    # What the overview adds up: each hour and day when it is over, and some of them again.
    "tally-alerts": {"task": "risk.console.tally", "schedule": 60.0, "options": {"expires": 50}},
}
if CORE_IS_EXTERNAL:
    CELERY_BEAT_SCHEDULE["look-at-core"] = {"task": "memory.core.look", "schedule": 5.0, "options": {"expires": 5}}
CELERY_TIMEZONE = "UTC"

# --- time, language ---------------------------------------------------------------------------------------------

USE_TZ = True
TIME_ZONE = "UTC"
BUSINESS_TIME_ZONE = envzone("BUSINESS_TIME_ZONE", "Asia/Shanghai")
USE_I18N = True
LANGUAGE_CODE = envstr("LANGUAGE_CODE", "en")
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "config" / "locale"]

# --- static files and console -----------------------------------------------------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "templates" / "static"]
WHITENOISE_USE_FINDERS = True
AUTHENTICATION_BACKENDS = ["guard.access.logins.LoginBackend"]
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = envbool("SECURE_COOKIES", False)
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE
X_FRAME_OPTIONS = "DENY"
# Bodies are bounded by config.api (413, problem+json), which also counts bodies that come without a length.
DATA_UPLOAD_MAX_MEMORY_SIZE = 48 * 1024 * 1024
# The files of one officer's note, together; they are kept in the database, in pieces.
ATTACHMENT_MOST_BYTES = envint("ATTACHMENT_MOST_BYTES", 20 * 1024 * 1024, low=1024, high=256 * 1024 * 1024)
FILE_UPLOAD_HANDLERS = [
    "config.base.uploads.BoundedUploads",
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "django.core.files.uploadhandler.TemporaryFileUploadHandler",
]

# --- sessions (agents' conversations) -----------------------------------------------------------------------------

# Threads that synchronous work of asynchronous code runs in; each may keep a connection to the database.
ASYNC_THREADS = envint("ASYNC_THREADS", 8, low=1, high=64)
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_BATCH_MESSAGES = 200
SESSION_TTL_SECONDS = envint("SESSION_TTL_SECONDS", 7200, low=1)
SESSION_MAX_AGE_SECONDS = envint("SESSION_MAX_AGE_SECONDS", 14400, low=1)
# Messages in a session's window: for every agent (`20`), or agent by agent (`20,advisor=40`).
SESSION_WINDOWS = envlimits("SESSION_WINDOW", 20, names=("customer", "advisor", "analyst", "risk"), low=1, high=200)
# Makes `summary` of what leaves the window: see memory/sessions/summaries.py. At most so many characters.
SESSION_SUMMARISER = envstr("SESSION_SUMMARISER", "memory.sessions.summaries.extractive")
SESSION_SUMMARY_CHARS = envint("SESSION_SUMMARY_CHARS", 1200, low=100, high=20_000)
SESSION_SEQ_LEASE = envint("SESSION_SEQ_LEASE", 1000, low=1)  # message numbers that MySQL leases to Redis at once
# Entries of sess:pending past which an append commits by itself, and at which it is refused (503).
SESSION_BACKLOG_SYNC = envint("SESSION_BACKLOG_SYNC", 20_000, low=0)
SESSION_BACKLOG_REFUSE = envint(
    "SESSION_BACKLOG_REFUSE", max(200_000, 2 * SESSION_BACKLOG_SYNC), low=SESSION_BACKLOG_SYNC + 1
)

# --- access -------------------------------------------------------------------------------------------------------

PRINCIPAL_CACHE_SECONDS = 5.0  # how old a process's memory of a key, or of a token that was in order, may be
ACCESS_TOKEN_SECONDS = envint("ACCESS_TOKEN_SECONDS", 600, low=30, high=3600)
REFRESH_TOKEN_SECONDS = envint("REFRESH_TOKEN_SECONDS", 86_400, low=60, high=30 * 86_400)
# Logins to the console: failures within the window, by account and by address, after which it is locked (seconds).
LOGIN_FAILURES_ACCOUNT = envint("LOGIN_FAILURES_ACCOUNT", 5, low=1)
LOGIN_FAILURES_ADDRESS = envint("LOGIN_FAILURES_ADDRESS", 5, low=1)
LOGIN_WINDOW_SECONDS = envint("LOGIN_WINDOW_SECONDS", 900, low=1, high=1800)
LOGIN_LOCK_SECONDS = envint("LOGIN_LOCK_SECONDS", 900, low=1, high=1800)
# For how long revoked and expired keys, ended blocks and pauses, and former versions of limits are kept. The audit log
# has them for good; a repeated block counts within 30 days.
GUARD_HISTORY_DAYS = envint("GUARD_HISTORY_DAYS", 400, low=31)
# For how many days rows are kept where it is not as docs/retention.md says: `alert_outbox=30,analytics_query_text=90`.
# Fewer than the law asks for are refused at start (config/apps.py).
RETENTION = envnumbers("RETENTION", low=1, high=36_525)
# Of one run of the nightly task, of which there are 18: it takes turns with the erasures and escalations of its queue.
PRUNE_SECONDS = envint("PRUNE_SECONDS", 30, low=1, high=300)
# Requests with an Idempotency-Key: for how long an answer is kept for repeats, and how long a key stays taken when its
# holder died (a working one renews it).
IDEMPOTENCY_KEPT_SECONDS = envint("IDEMPOTENCY_KEPT_SECONDS", 86_400, low=60, high=30 * 86_400)
IDEMPOTENCY_LEASE_SECONDS = envint("IDEMPOTENCY_LEASE_SECONDS", 15, low=5, high=300)

# --- admission ----------------------------------------------------------------------------------------------------

# Defaults where the table admission_limit has no row. Whole calls; -1: no limit.
ADMISSION_LIMITS = {
    "rate": envint("ADMISSION_RATE_PER_MINUTE", 60, low=-1, high=10_000),  # of an actor and agent, any 60 s
    "hourly": envint("ADMISSION_ACTIONS_PER_HOUR", 1000, low=-1),  # of an actor and action, a fixed window
    "ip": envint("ADMISSION_ADDRESS_PER_MINUTE", 300, low=-1),  # of an address, a fixed window
    "quota": envint("ADMISSION_CALLS_PER_DAY", 500, low=-1),  # AI calls of an actor, a business day
    "tenant_running": envint("ADMISSION_TENANT_RUNNING", 200, low=-1),
    "user_running": envint("ADMISSION_USER_RUNNING", 20, low=-1),
}
ADMISSION_BUDGET_PER_MONTH = envstr("ADMISSION_BUDGET_PER_MONTH")  # of a tenant, a decimal number; empty: no limit
ADMISSION_AI_ACTIONS = frozenset(envlist("ADMISSION_AI_ACTIONS", "chat,run"))  # count for the daily quota
ADMISSION_RATE_WINDOW_MS = envint("ADMISSION_RATE_WINDOW_MS", 60_000, low=1, high=60_000)  # shorter in tests alone
# Seconds: until a slot is free again unless renewed; until the reservation of a caller that died is.
ADMISSION_LEASE_SECONDS = envint("ADMISSION_LEASE_SECONDS", 60, low=1, high=3600)
ADMISSION_RESERVATION_SECONDS = envint("ADMISSION_RESERVATION_SECONDS", 600, low=1, high=86400)
# With Redis away the processes of one DATA_DIR admit a share of each limit together: one of so many, and which one it
# is, from 0. The shares of all add up to the limit.
ADMISSION_HOSTS = envint("ADMISSION_HOSTS", 1, low=1)
ADMISSION_HOST_NUMBER = envint("ADMISSION_HOST_NUMBER", 0, low=0, high=ADMISSION_HOSTS - 1)
ADMISSION_BLOCK_SECONDS = envint("ADMISSION_BLOCK_SECONDS", 900, low=1)
ADMISSION_BLOCK_MOST_SECONDS = envint("ADMISSION_BLOCK_MOST_SECONDS", 86400, low=1, high=366 * 86400)

# --- profiles -----------------------------------------------------------------------------------------------------

ANALYST_READS_PROFILES = envbool("ANALYST_READS_PROFILES", False)  # grants the analyst agent masked reads of l1 and l3

# --- drafts and analysts' queries -------------------------------------------------------------------------------

DRAFT_EXPIRY_HOURS = envint("DRAFT_EXPIRY_HOURS", 168, low=1, high=24 * 366)  # since the last step
DRAFT_PEER_REVIEW = envbool("DRAFT_PEER_REVIEW", False)  # lets advisors review what others wrote for their customers
ANALYTICS_SECONDS = float(envint("ANALYTICS_SECONDS", 5, low=1, high=300))  # of one statement
ANALYTICS_ROWS = envint("ANALYTICS_ROWS", 1000, low=1, high=100_000)
ANALYTICS_MIN_GROUP = envint("ANALYTICS_MIN_GROUP", 5, low=1, high=1000)  # customers of a row shown without a grant
ANALYTICS_BYTES = envint("ANALYTICS_BYTES", 4 * 1024 * 1024, low=1024)  # of one answer's rows
ANALYTICS_AT_ONCE = envint("ANALYTICS_AT_ONCE", 2, low=1, high=100)  # statements of one analyst in one process
ANALYTICS_AT_ONCE_ALL = envint("ANALYTICS_AT_ONCE_ALL", 8, low=1, high=1000)  # of all of them in one process

# --- audit ------------------------------------------------------------------------------------------------------

# Keys of the audit's seals, newest first: `id:hex,id:hex`. Unset: derived from SECRET_KEY (and the fallbacks).
AUDIT_SEAL_KEYS = envkeys("AUDIT_SEAL_KEYS")
# A file outside of the database to which the sealer appends an anchor of the chain's head, and how often (seconds).
AUDIT_ANCHOR_FILE = envstr("AUDIT_ANCHOR_FILE")
AUDIT_ANCHOR_SECONDS = envint("AUDIT_ANCHOR_SECONDS", 60, low=1)
# Where the sealer remembers the chain's head, beside the database and not in it.
AUDIT_MEMORY_DIR = DATA_DIR
# An id of audit_log that stays unused for so long is taken for an abandoned transaction's: no row may come there later.
AUDIT_GAP_SECONDS = envint("AUDIT_GAP_SECONDS", 3600, low=60)
# Seconds that the oldest unsealed row may be old before readiness and doctor warn.
AUDIT_SEAL_LAG = envint("AUDIT_SEAL_LAG", 30, low=1)

# --- live feed ---------------------------------------------------------------------------------------------------

# Seconds between heartbeats of a websocket.
FEED_HEARTBEAT_SECONDS = envint("FEED_HEARTBEAT_SECONDS", 15, low=1, high=300)
# Seconds between two looks at the logins of all sockets of a process and at what no message told of: 8 queries.
FEED_WATCH_SECONDS = envint("FEED_WATCH_SECONDS", 2, low=1, high=60)
# Sockets of one person, and in all, in one process.
FEED_SOCKETS_PER_PERSON = envint("FEED_SOCKETS_PER_PERSON", 50, low=1)
FEED_SOCKETS = envint("FEED_SOCKETS", 10_000, low=1)

# --- outward notifications ----------------------------------------------------------------------------------------

# Where people reach the console: links in notifications. Unset: none.
PUBLIC_URL = envaddress("PUBLIC_URL")
# Keys that encrypt channels' secrets, newest first: `id:hex,id:hex`. Unset: derived from SECRET_KEY and fallbacks.
NOTIFY_SECRET_KEYS = envkeys("NOTIFY_SECRET_KEYS")
# Private, loopback and link-local networks that notifications may be sent into all the same.
NOTIFY_NETWORKS = envnetworks("NOTIFY_NETWORKS")[0]
NOTIFY_PLAIN_HTTP = envbool("NOTIFY_PLAIN_HTTP", False)  # webhooks without TLS, and mail without STARTTLS
# Where a service is reached instead of its public address (a private installation, a gateway).
NOTIFY_BASES = envaddresses("NOTIFY_BASES", names=("wecom", "dingtalk", "feishu", "slack"))
NOTIFY_CA_FILE = envstr("NOTIFY_CA_FILE")  # certificates that far ends are checked against, in place of the usual ones
NOTIFY_ATTEMPTS = envint("NOTIFY_ATTEMPTS", 12, low=1, high=100)  # of one message, in about an hour; then given up
NOTIFY_SECONDS = float(envint("NOTIFY_SECONDS", 15, low=1, high=60))  # of one try, whatever the far end does

# --- logging: one line an event, trace id on each, no bodies, no keys, no addresses -------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "address": {"()": "config.logs.AddressFilter"},
        "outage": {"()": "config.logs.OutageFilter"},
        "trace": {"()": "config.base.trace.TraceFilter"},
    },
    "formatters": {
        "line": {
            "()": "config.base.redact.RedactingFormatter",
            "fmt": "%(asctime)s %(levelname)s %(name)s [%(trace_id)s] %(message)s",
        }
    },
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["trace", "address"]},
        "nothing": {"class": "logging.NullHandler"},
    },
    "root": {
        "handlers": ["console"],
        "level": envchoice("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
    },
    "loggers": {
        "httpx": {"level": "WARNING"},
        # They write addresses and refused tokens, which are secrets; what became of a try is in its row.
        "apprise": {"level": "CRITICAL", "handlers": ["nothing"], "propagate": False},
        "urllib3": {"level": "CRITICAL", "handlers": ["nothing"], "propagate": False},
        "django.request": {"level": "ERROR", "filters": ["address"]},
        "django.security.csrf": {"filters": ["address"]},
        "django.security.DisallowedHost": {"filters": ["address"]},
        # runserver's own line for each request, with its address
        "django.server": {"level": "ERROR", "filters": ["address"], "handlers": [], "propagate": True},
        "uvicorn.error": {"filters": ["address"]},
        # what a server in front of us would write for each request; uvicorn is started without it
        "uvicorn.access": {"level": "CRITICAL", "handlers": [], "propagate": False},
        "gunicorn.access": {"level": "CRITICAL", "handlers": [], "propagate": False},
        "celery.app.trace": {"level": "WARNING", "filters": ["address"]},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING", "filters": ["outage"]},
        "celery.worker.consumer.consumer": {"filters": ["outage"]},
    },
}
