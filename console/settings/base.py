"""The one list of settings; every bound has a name and a unit (I9)."""

import os
from datetime import timedelta
from pathlib import Path

import environs
from csp.constants import NONE, SELF

BASE_DIR = Path(__file__).resolve().parent.parent.parent

# Names that the environment itself sets, before stack.env fills the gaps: by them `up` knows the user's own parts.
ENV_SET_OUTSIDE: frozenset[str] = frozenset(os.environ)
env = environs.Env()
SIGNALBOX_DATA_DIR: Path = Path(env.str("SIGNALBOX_DATA_DIR", str(BASE_DIR / ".signalbox")))
_stack_env = SIGNALBOX_DATA_DIR / "stack.env"
if _stack_env.is_file():
    env.read_env(str(_stack_env), recurse=False)

# -- What runs where ---------------------------------------------------------------------------------------
DEBUG: bool = env.bool("DEBUG", False)
SECRET_KEY_UNSET = "unset"  # noqa: S105 - the web server refuses to start with it (console/asgi.py)
SECRET_KEY: str = env.str("SECRET_KEY", SECRET_KEY_UNSET)
# Keys are shown as key# + 8 hex of an HMAC with this secret; changing it changes every label.
SIGNALBOX_KEY_LABEL_SECRET: str = env.str("SIGNALBOX_KEY_LABEL_SECRET", SECRET_KEY)
SIGNALBOX_ENV_LABEL: str = env.str("SIGNALBOX_ENV_LABEL", "local")
SIGNALBOX_DEMO: bool = env.bool("SIGNALBOX_DEMO", False)
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", [])

DATABASES = {
    "default": {
        **env.dj_db_url("DATABASE_URL", "postgresql://signalbox@127.0.0.1:5432/signalbox"),
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"connect_timeout": 5, "application_name": env.str("SIGNALBOX_PROCESS", "signalbox")},
    }
}
# LISTEN needs a connection of its own, not one from a transaction pooler; empty = poll.
DATABASE_DIRECT_URL: str = env.str("DATABASE_DIRECT_URL", env.str("DATABASE_URL", ""))
VALKEY_URL: str = env.str("VALKEY_URL", "redis://127.0.0.1:6379/0")
KAFKA_BOOTSTRAP_SERVERS: str = env.str("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
# Further librdkafka settings for every client (security.protocol, sasl.*), as JSON.
KAFKA_CLIENT_CONFIG: dict[str, object] = dict(env.json("KAFKA_CLIENT_CONFIG", {}))
KAFKA_REPLICATION_FACTOR: int = env.int("KAFKA_REPLICATION_FACTOR", 1)

# -- Django ------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "relay",
    "dlq",
    "sagas",
    "console",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "csp",
]
if SIGNALBOX_DEMO:
    INSTALLED_APPS.append("console.demo")

MIDDLEWARE = [
    "console.middleware.CorrelationMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
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
                "console.context.frame",
            ],
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "now"
LOGOUT_REDIRECT_URL = "login"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = env.str("TIME_ZONE", "UTC")
USE_TZ = True
USE_THOUSAND_SEPARATOR = False
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = SIGNALBOX_DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

# -- Security ----------------------------------------------------------------------------------------------
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
SIGNALBOX_HTTPS: bool = env.bool("SIGNALBOX_HTTPS", False)
SECURE_SSL_REDIRECT = SIGNALBOX_HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if SIGNALBOX_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SIGNALBOX_HTTPS
SECURE_HSTS_PRELOAD = SIGNALBOX_HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SIGNALBOX_HTTPS else None
SESSION_COOKIE_SECURE = SIGNALBOX_HTTPS
CSRF_COOKIE_SECURE = SIGNALBOX_HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"

CSRF_FAILURE_VIEW = "console.views.errors.csrf_failed"
SESSION_COOKIE_AGE = 12 * 3_600
SESSION_SAVE_EVERY_REQUEST = False
SIGN_IN_WINDOW_S = 300
SIGN_IN_FAILURES_PER_ACCOUNT = 5
SIGN_IN_FAILURES_PER_ADDRESS = 50

# -- The API -----------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["console.api.auth.TokenAuthentication", "console.api.auth.SignedIn"],
    "DEFAULT_PERMISSION_CLASSES": ["console.api.auth.Permitted"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["console.api.parsing.BoundedJsonParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "console.api.problems.answer_error",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Signalbox",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["console.api.auth.Permitted"],
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": False,
}
API_BODY_BYTES = 1024 * 1024
API_PAGE_ROWS = 50
API_PAGE_ROWS_MAX = 500
API_TOKEN_DAYS_MAX = 366
API_TOKENS_LISTED = 200
API_TOKEN_USE_NOTED_S = 60

# -- Celery and Channels -----------------------------------------------------------------------------------
CELERY_BROKER_URL = VALKEY_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "console"
CELERY_TASK_ROUTES = {"relay.tick": {"queue": "relay"}}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_TIME_LIMIT = None
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    "relay.tick": {"task": "relay.tick", "schedule": 1.0, "options": {"expires": 1}},
    "relay.housekeeping": {"task": "relay.housekeeping", "schedule": 30.0, "options": {"expires": 30}},
    "relay.collect_lag": {"task": "relay.collect_lag", "schedule": 5.0, "options": {"expires": 5}},
    "relay.sample": {"task": "relay.sample", "schedule": 5.0, "options": {"expires": 5}},
    "console.watch": {"task": "console.watch", "schedule": 2.0, "options": {"expires": 2}},
    "dlq.fold_counts": {"task": "dlq.fold_counts", "schedule": 5.0, "options": {"expires": 5}},
    "dlq.forget_attempts": {"task": "dlq.forget_attempts", "schedule": 60.0, "options": {"expires": 60}},
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [VALKEY_URL], "prefix": "signalbox"},
    }
}

# -- Bounds of the relay (units in the names) --------------------------------------------------------------
RELAY_SHARDS = 64
RELAY_ROUND_ROWS = 2_000
RELAY_PUMP_ROWS = 1_000  # handed to Kafka's client before its reports are served again
RELAY_LATE_ROWS = 1_000
RELAY_MAX_UNACKED_ROWS = 10_000
# New objects before Python's cycle collector looks at them (its own value is 700). Rows in the air live for a moment
# and form no cycles; looking for some took a third of the relay's time.
RELAY_GC_YOUNG_OBJECTS = 50_000
RELAY_CHECKPOINT_EVERY_MS = 200
RELAY_CHECKPOINT_EVERY_ROWS = 5_000
RELAY_HEARTBEAT_EVERY_MS = 1_000
# A leaving runner keeps its shards this long after saying so: longer than a beat, so that its successor waits for them.
RELAY_HANDOVER_NOTICE_MS = 1_500
RELAY_LEASE_S = 10
RELAY_STALL_S = 10
RELAY_IDLE_WAIT_MS = 250
RELAY_TASK_BUDGET_S = 30
RELAY_TASK_LIMIT_S = 60
RELAY_STOP_WITHIN_S = 10
RELAY_PARTITION_ROWS = 1_000_000
RELAY_PARTITIONS_AHEAD = 8
RELAY_PARTITIONS_LOW = 4
RELAY_RETRY_BASE_S = 5
RELAY_RETRY_FACTOR = 2
RELAY_RETRY_ATTEMPTS = 10
RELAY_RETRY_MOST_S = 3_600  # the longest wait before a further try
RELAY_RETRY_TOPIC_ROWS = 1_000
RELAY_RETRY_KEY_ROWS = 100  # rows of one key in the air that were set aside without a failure
RELAY_RETRY_EVERY_MS = 100
RELAY_REJOIN_ROWS = 500  # rows of a key in memory behind the last ones that were set aside
RELAY_REJOIN_S = 1.5  # below RELAY_BROKERS_DOWN_STALL_S: their round is in the air so long
RELAY_REJOIN_PAUSE_S = 2
RELAY_PAUSES_MAX = 1_000
RELAY_POLICY_ATTEMPTS_MAX = 100
RELAY_INGRESS_AGE_MAX_S = 604_800
RELAY_INGRESS_CACHE_MS = 1_000
RELAY_INGRESS_RETRY_AFTER_S = 10
RELAY_SKIPPED_RETENTION = timedelta(days=365)
RELAY_WAITING_PAGE_ROWS_MAX = 500
POLICY_VERSIONS_SHOWN = 100
POLICY_SUBJECTS_MAX = 1_000  # things of one scope that have a policy
RELAY_UNSENT_COUNT_CAP = 10_000
RELAY_SILENT_AFTER_S = 3
# Younger rows are on their way: a list of them would only flicker.
RELAY_WAITING_SHOWN_S = 1.0
RELAY_ROUND_BYTES = 32 * 1024 * 1024
RELAY_MAX_UNACKED_BYTES = 128 * 1024 * 1024
RELAY_LEAST_QUOTA_ROWS = 16
RELAY_RETRY_ROUND_ROWS = 100
RELAY_BUSY_WAIT_MS = 20
RELAY_SEND_NOW_MS = 1  # a wait for acknowledgements when there is no backlog
RELAY_BUSY_FOR_MS = 1_000
RELAY_LEASE_MARGIN_S = 2
RELAY_BROKERS_DOWN_STALL_S = 2
RELAY_BROKER_TIMEOUT_S = 4
RELAY_PROBE_TIMEOUT_S = 2
RELAY_BELL_CONNECT_S = 2
RELAY_BELL_RETRY_S = 30
RELAY_BELL_IDLE_S = 5  # the server ends a sleeper's session that is silent for so long
RELAY_BELL_LOCK_MS = 200
# NOTIFY lets writers commit one by one: under traffic the bell is set so often, and looks come instead.
RELAY_BELL_MAX_PER_S = 20
RELAY_PACE_MS = 3  # between two looks under traffic without a backlog: the processor is the writers', too
RELAY_TOPIC_FACTS_S = 60
RELAY_TOPIC_RECHECK_S = 2
RELAY_TASK_OVERLAP_S = 2
RELAY_RECONNECT_MAX_S = 5
RELAY_CHECKPOINT_ALL_EVERY_S = 1
RELAY_SNAPSHOT_LAG_XIDS = 10_000
RELAY_HOUSEKEEPING_EVERY_S = 25
RELAY_STAT_EVERY_S = 1
RELAY_STAT_RETENTION_S = 3_600
RELAY_RANGE_RETENTION = timedelta(days=7)
RELAY_OUTBOX_RETENTION = timedelta(days=7)
RELAY_PURGE_PARTITIONS = 8
RELAY_PURGE_LOCK_MS = 100
RELAY_PURGE_PAUSE_MS = 200
RELAY_PURGE_TRIES = 20
RELAY_DUPLICATE_SCAN_ROWS = 2_000
RELAY_DUPLICATE_SCAN_S = 3
RELAY_RUNNER_SHOWN_S = 60
RELAY_STATUS_WINDOW_S = 60
RELAY_WAITING_SHOWN_ROWS = 20
RELAY_SAMPLE_EVERY_S = 5
RELAY_SAMPLE_RETENTION = timedelta(days=2)
RELAY_SAMPLE_MINUTE_RETENTION = timedelta(days=14)
RELAY_SAMPLE_HOUR_RETENTION = timedelta(days=90)
RELAY_HISTORY_POINTS_MAX = 1_000
RELAY_HELD_SHOWN = 20  # keys of each kind on the Relay page; the waiting rows have all
RELAY_OLDEST_LISTED = 10  # waiting rows on the Relay page
RELAY_TOPICS_SHOWN = 200
RELAY_SKIPPED_SHOWN = 5
RELAY_TRACE_RECORDS = 20_000  # records of Kafka that are read to find where one event landed
RELAY_TRACE_WITHIN_S = 5
PUBLISH_CHUNK_ROWS = 1_000
PUBLISH_MAX_HEADERS = 64

# -- Bounds of consumers -----------------------------------------------------------------------------------
CONSUMER_CONCURRENCY: int = env.int("CONSUMER_CONCURRENCY", 4)
CONSUMER_POLL_MS = 200
CONSUMER_PAUSED_POLL_MS = 20
CONSUMER_FETCH_BACKOFF_MS = 50
CONSUMER_MAX_POLL_INTERVAL_MS = 300_000
CONSUMER_BUFFER_RECORDS = 1_000
CONSUMER_BUFFER_BYTES = 64 * 1024 * 1024
CONSUMER_STOP_WITHIN_S = 15
HANDLER_DEADLINE_S = 60
# "classic", or "consumer" for KIP-848 (brokers from 4.0), which takes no strategy and no session timeout.
CONSUMER_GROUP_PROTOCOL: str = env.str("CONSUMER_GROUP_PROTOCOL", "classic")
CONSUMER_ASSIGNMENT_STRATEGY: str = env.str("CONSUMER_ASSIGNMENT_STRATEGY", "cooperative-sticky")
CONSUMER_SESSION_TIMEOUT_MS: int = env.int("CONSUMER_SESSION_TIMEOUT_MS", 10_000)
CONSUMER_BATCH_RECORDS = 200
CONSUMER_COMMIT_EVERY_MS = 500
CONSUMER_COMMIT_ANSWER_S = 60
CONSUMER_REVOKE_WAIT_S = 3
# A topic that is made anew under its name while it is read is noticed within this.
CONSUMER_TOPIC_CHECK_EVERY_S = 5
CONSUMER_REQUEST_TIMEOUT_S = 5
# How often a consumer looks whether a person stopped its group or chose where it goes on; how long it waits at first.
CONSUMER_ORDERS_EVERY_S = 1
CONSUMER_SWITCH_WAIT_S = 5
# The policy where nobody set one: waits of base x factor^n up to the limit; it gives up 42 min 35 s after the first
# failure.
CONSUMER_RETRY_ATTEMPTS = 10
CONSUMER_RETRY_BASE_S = 5.0
CONSUMER_RETRY_FACTOR = 2.0
CONSUMER_RETRY_LIMIT_S = 3_600.0
CONSUMER_RETRY_JITTER = 0.2  # the share of a wait that chance may take away
CONSUMER_RETRY_AFTER_MAX_S = 3_600.0
CONSUMER_ORDERING = "quarantine"
# A failure that is neither transient nor permanent is tried this often, then parked.
CONSUMER_UNKNOWN_ATTEMPTS = 3
DLQ_POLICY_REFRESH_S = 2  # a change is obeyed within 5 s
DLQ_POLICY_LINES = 2_000
DLQ_POLICY_ATTEMPTS_MAX = 100
DLQ_POLICY_WAIT_MAX_S = 86_400.0
DLQ_POLICY_FACTOR_MAX = 10.0
DLQ_POLICY_OVERRIDES_MAX = 100
DLQ_POLICY_HORIZON_MAX_S = 604_800.0  # 7 days: a waiting record keeps its partition's offset
# Recorded tries: how long and how many are kept, and how many a sweep deletes in one statement, and statements.
DLQ_ATTEMPT_RETENTION = timedelta(days=14)
DLQ_ATTEMPT_ROWS = 5_000_000
DLQ_ATTEMPT_SWEEP_ROWS = 10_000
DLQ_ATTEMPT_SWEEP_BATCHES = 50
DLQ_ATTEMPT_SWEEP_EVERY_S = 600
DLQ_ATTEMPTS_SHOWN = 100  # of one record
DLQ_SIMULATION_ROWS = 50_000  # recorded tries that one simulation looks at
DLQ_SIMULATION_DAYS = 7
# The database or the broker is away: nothing is spent, and a record waits base x 2^n up to the limit.
CONSUMER_OUTAGE_BASE_S = 1.0
CONSUMER_OUTAGE_LIMIT_S = 30.0
# Waiting records go to the database when waiting keys fill half of their partition's share of the buffer, or hold its
# offset back by so many delivered records. A key and a group may have so many there; then partitions stop.
CONSUMER_FRONTIER_RECORDS = 20_000
CONSUMER_RELIEVE_EVERY_S = 0.5
CONSUMER_WAITING_KEY_RECORDS = 10_000
CONSUMER_WAITING_GROUP_RECORDS = 100_000
CONSUMER_WAITING_GROUP_BYTES = 4 * 1024 * 1024 * 1024
CONSUMER_ROOM_CHECK_EVERY_S = 5
CONSUMER_FULL_RETRY_S = 5.0
CONSUMER_STORED_HERE = 200  # stored records that a process has on its shelf at once
CONSUMER_KEEPER_EVERY_S = 0.2
CONSUMER_WAITING_SWEEP_EVERY_S = 600
CONSUMER_WAITING_PASSED_S = 600  # rows of records that a group was moved past are deleted this long afterwards
CONSUMER_HOLDS_SHOWN = 1_000  # partitions
# A breaker opens after so many transient failures in a row, on at least so many records; then one record probes.
CONSUMER_BREAKER_FAILURES = 5
CONSUMER_BREAKER_RECORDS = 3
CONSUMER_BREAKER_PROBE_S = 2.0
CONSUMER_BREAKER_PROBE_MAX_S = 30.0
CONSUMER_BREAKER_REFRESH_S = 1.0
CONSUMER_BREAKERS_SHOWN = 1_000
# A call that is made once: its claim ends so long after its process was last heard of; a waiting caller looks so often.
ONCE_LEASE_S = 15.0
ONCE_RENEW_EVERY_S = 4.0
ONCE_LOOK_EVERY_S = 0.2
ONCE_RESULT_BYTES = 256 * 1024
# The session of a handler is ended so long after its deadline, when the server has not done it.
HANDLER_LATE_GRACE_S = 0.5
# A handler this long past its deadline is stuck; with so many stuck threads the process ends to be restarted.
HANDLER_STUCK_GRACE_S = 5
HANDLER_STUCK_THREADS = 2
HANDLER_RESULT_BYTES = 16 * 1024
DLQ_RATE_WINDOW_S = 10
DLQ_RATE_COUNT_CAP = 100_000
DLQ_STACK_FRAMES = 20
# A foreign dead-letter topic is imported in transactions of so many records and bytes at most (or of one record).
DLQ_IMPORT_BATCH_RECORDS = 500
DLQ_IMPORT_BATCH_BYTES = 8 * 1024 * 1024
DLQ_EXPORT_HEADER_BYTES = 16 * 1024
# Each dead letter is copied to <topic>.<group>.dlq; the rules (docs/dead-letter-copies.md) say how, by topic and group.
DLQ_COPIES: bool = env.bool("DLQ_COPIES", True)
DLQ_COPY_CREATE_TOPICS: bool = env.bool("DLQ_COPY_CREATE_TOPICS", True)
DLQ_COPY_RULES: dict[str, dict[str, object]] = dict(env.json("DLQ_COPY_RULES", {}))
DLQ_COPY_PARTITIONS = 6  # of a dead-letter topic whose source is not declared here
DLQ_COPY_LOOK_EVERY_S = 30
DLQ_COPY_FAILED_SHOWN_S = 3_600  # so long a copy that failed keeps its topic's incident open
DLQ_LINKED_ROWS = 20  # other dead letters of the same original record, on the page of one
DLQ_SIMILAR_COUNT_CAP = 10_000
# Records that wait behind the parked head of their key; at the limit the key, at last its partition, waits in Kafka.
DLQ_KEY_LETTERS_MAX = 10_000
DLQ_GROUP_BEHIND_MAX = 100_000
# A replay: how many dead letters one may have, how long its preview may be started, and how many may be open at once.
REPLAY_SELECTION_MAX = 100_000
REPLAY_PREVIEW_LIFE_S = 900
REPLAY_PREVIEW_KEPT_S = 86_400
REPLAY_OPEN_MAX = 50
REPLAY_RATE_MAX_PER_S = 1_000
REPLAY_LATE_COUNT_CAP = 1_000  # arrivals since the preview are counted up to here
REPLAY_SAMPLES = 20  # dead letters that a preview shows
REPLAY_SCHEMA_CHECK_ROWS = 1_000  # undecodable ones that a preview decodes again
# It goes one first, then so many more, then windows of so many; it stops by itself when a larger part fails again.
REPLAY_RAMP_ITEMS = 10
REPLAY_WINDOW_ITEMS = 50
REPLAY_STOP_RATIO = 0.2
# A dead letter that failed again so often needs a person and is left out of replays of many.
REPLAY_LOOP_GUARD = 3
# A consumer takes so many at once, for so long, unless it renews; it looks this often when it has nothing to do.
REPLAY_BATCH_ITEMS = 200
REPLAY_SMALL_BYTES = 16 * 1024  # records up to this size are read in batches, larger ones alone
REPLAY_LEASE_S = 30
REPLAY_RENEW_EVERY_S = 5
REPLAY_LOOK_EVERY_MS = 500
REPLAY_BUSY_LOOK_MS = 100
REPLAY_REST_MAX_S = 5.0  # while a breaker is open or the database away
REPLAY_PAGE_ITEMS_MAX = 500
REPLAY_SPEED_WINDOW_S = 5
DLQ_BUCKET_RETENTION = timedelta(days=2)
# Acts on more dead letters than this need a reason, and on more than that a second person, who has so long to answer.
DLQ_REASON_ABOVE = 50
DLQ_SECOND_PERSON_ABOVE: int = env.int("DLQ_SECOND_PERSON_ABOVE", 500)
SECOND_PERSON_WITHIN_S = 900
REPLAY_IDS_MAX = 900  # dead letters that a form or call names one by one; Django reads 1,000 fields
REPLAY_RATE_OFFERED_PER_S = 50
SECOND_REQUESTS_LISTED = 50
DLQ_BUCKET_SWEEP_EVERY_S = 3_600
# Counts of failure groups: appended by triggers, folded so often, so many rows a statement and statements a time.
DLQ_FOLD_EVERY_S = 15
DLQ_FOLD_ROWS = 20_000
DLQ_FOLD_ROUNDS = 50
DLQ_GROUP_BUCKET_RETENTION = timedelta(days=8)  # longer than the longest window of the groups' table
DLQ_GROUP_MEMBERS_MAX = 20  # fingerprints in one failure group
DLQ_GROUP_PLACES = 20  # topics and groups that are named for one failure group
DLQ_SNOOZE_MOST = timedelta(days=30)
DLQ_DISCARD_MAX = 5_000  # dead letters that one act discards: the locks of their keys are held at once
DLQ_DISCARD_RESTORABLE = timedelta(days=30)

# -- Bounds of lag, processes, watch -----------------------------------------------------------------------
LAG_COLLECT_EVERY_S = 5
LAG_REQUEST_TIMEOUT_S = 5
LAG_PARALLEL_REQUESTS = 64
LAG_WINDOW_S = 60
LAG_MIN_SAMPLES = 5
LAG_ALLOWED_DEFAULT = 50
LAG_RAW_RETENTION = timedelta(days=2)
LAG_MINUTE_RETENTION = timedelta(days=14)
LAG_HOUR_RETENTION = timedelta(days=90)
LAG_PASS_LIMIT_S = 35
LAG_LEASE_S = 45
KAFKA_ASIDE_WITHIN_S = 40  # longer than a pass
LAG_GROUPS_LIMIT = 2_000
LAG_NO_MEMBER_AFTER_S = 10
LAG_RECENT_POINTS = 24
LAG_WRITE_ROWS = 5_000
LAG_STALE_PASSES = 4
LAG_ALLOWED_MAX = 1_000_000_000
LAG_HISTORY_POINTS_MAX = 1_000
LAG_SPARK_POINTS = 60
LAG_SPARK_SERIES = 500
LAG_OWNER_CHARS = 120
LAG_ERROR_CHARS = 200
LAG_PARTITIONS_AHEAD_DAYS = 2
REWIND_PARTITIONS_MAX = 64  # of one act: its audit row names each of them
REWIND_TIMES_WITHIN_S = 4
REWIND_PREVIEW_S = 600
APPLIED_COUNT_ROWS = 100_000
PROCESS_HEARTBEAT_EVERY_S = 1
PROCESS_LOST_AFTER_S = 5
PROCESS_CRASH_SHOWN_S = 600
PROCESS_FORGET_AFTER = timedelta(hours=1)
WATCH_EVERY_S = 2
RELAY_UNSENT_OLD_S = 30
DEAD_LETTERS_GROWING_PER_HOUR = 100
CONSUMER_CRASHES_RISING = 3
CONSUMER_CRASHES_WITHIN_S = 600
BEAT_SILENT_AFTER_S = 10
# While no process of the installation is older, silence is called starting.
STARTING_GRACE_S: int = env.int("STARTING_GRACE_S", 30)
SWEEP_SILENT_AFTER_S = 120
VALKEY_PING_TIMEOUT_MS = 500
VALKEY_PING_WAIT_MS = 50
INCIDENT_REFRESH_EVERY_S = 5
STATION_SAMPLE_EVERY_S = 5
STATION_SAMPLE_RETENTION = timedelta(days=2)
HINT_EVERY_MS = 1_000
HINT_CIRCUIT_OPEN_S = 5
HINT_SEND_TIMEOUT_S = 2
LIVE_BEAT_EVERY_S = 10
AUDIT_DETAIL_BYTES = 4_000
DEPENDENCY_TIMEOUT_S = 2
AUDIT_REASON_CHARS = 500
LIST_PAGE_ROWS = 50
LIST_FILTER_CHARS = 249  # the longest topic name that Kafka takes
DLQ_COUNT_ROWS = 20  # topic and group pairs above the list of dead letters
LAG_PAGE_ROWS = 100  # partitions on one page
LAG_GROUP_ROWS = 12  # partitions of one group while no group is chosen
LAG_CHART_TIMES = 7  # columns of the table beside the lag chart

# -- Bounds of the returns pipeline demo -------------------------------------------------------------------
# Put before the demo's topic and group names, so that several demos can share one broker.
DEMO_NAME_PREFIX: str = env.str("SIGNALBOX_DEMO_PREFIX", "")
DEMO_SMOKE: bool = env.bool("SIGNALBOX_SMOKE", False)
DEMO_CUSTOMERS = 200
DEMO_BROKEN_CUSTOMERS = 40
DEMO_WRITERS = 4
DEMO_MAX_CLAIMS_PER_S = 200
DEMO_MAX_TRIAGE_MS = 5_000
DEMO_SLOW_FACTOR = 8
DEMO_REFUND_LIMIT_CENTS = 40_000
DEMO_RATES_EVERY_S = 1
DEMO_RECONNECT_AFTER_S = 1
DEMO_CATCH_UP_MAX_S = 1
DEMO_PURGE_EVERY_S = 60
DEMO_PURGE_BATCH_ROWS = 5_000
DEMO_RETENTION = timedelta(days=2)
RAW_PRODUCE_WITHIN_S = 10
RAW_READ_SILENCE_S = 15

# -- Logs: structlog renders; standard library loggers go through the same chain ---------------------------
SIGNALBOX_LOG_JSON: bool = env.bool("SIGNALBOX_LOG_JSON", False)
SIGNALBOX_LOG_LEVEL: str = env.str("SIGNALBOX_LOG_LEVEL", "INFO")
LOGGING_CONFIG = "console.logs.configure"
LOGGING: dict[str, object] = {}
