"""The embedded stack: PostgreSQL and Valkey from wheels, Kafka from Maven, all on loopback, data in one folder.

Each service module gives `prepare(...)` (idempotent, leaves running data alone), `command(...)` (the argument list
of the foreground process, for whoever supervises it) and `wait_ready(...)`. Development and tests only.
"""
