"""Apache Kafka 4 (KRaft, one node) from Maven, run on the system's Java 17 or later.

`pom.xml` pins the version. The jars lie in `.tools/kafka-<version>-<digest of pom.xml>/` of the checkout, or where
`SIGNALBOX_TOOLS_DIR` says; fetched once.
"""

import hashlib
import re
import shutil
import socket
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from os import environ, geteuid
from pathlib import Path

from console.stack.errors import StackError
from console.stack.waiting import wait_until

HERE = Path(__file__).resolve().parent
POM = HERE / "pom.xml"
JAVA_MAJOR = 17
READY_WITHIN_S = 60
FETCH_WITHIN_S = 600
HEAP = "512m"
OWN_BROKER = (
    "Or use a broker of your own: set KAFKA_BOOTSTRAP_SERVERS=host:port (and KAFKA_CLIENT_CONFIG for its security) "
    "and start again."
)


def kafka_version() -> str:
    """The version that `pom.xml` pins."""
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text())
    if not found:
        raise StackError(f"{POM} pins no kafka.version")
    return found[1]


def jars_dir() -> Path:
    """Where the jars of this `pom.xml` are kept."""
    tools = Path(environ.get("SIGNALBOX_TOOLS_DIR", HERE.parent.parent / ".tools"))
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:8]
    return tools / f"kafka-{kafka_version()}-{digest}"


def ensure_programs() -> None:
    """See to Java 17+ and, while the jars are not fetched, Maven; install them by apt as root on Debian.

    Raises:
        StackError: something is missing; the text says what to install.
    """
    missing = _missing_programs()
    if missing and geteuid() == 0 and shutil.which("apt-get"):
        _apt_install(list(missing.values()))
        missing = _missing_programs()
    if missing:
        raise StackError(
            f"Apache Kafka needs {' and '.join(missing)}. On Debian or Ubuntu: sudo apt-get install "
            f"{' '.join(missing.values())}. {OWN_BROKER}"
        )


def ensure_jars() -> Path:
    """Fetch Kafka's jars with Maven when they are not there; return their folder.

    Raises:
        StackError: Maven failed; its last lines are in the text.
    """
    target = jars_dir()
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Into a folder of its own, then renamed: whoever sees the jars sees all of them.
    fetched = Path(tempfile.mkdtemp(prefix="fetch-", dir=target.parent))
    fetched.chmod(0o755)
    try:
        _fetch_jars(fetched)
        if not target.exists():
            fetched.rename(target)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)
    return target


def prepare(data: Path, port: int, controller_port: int) -> Path:
    """Write the configuration and format the log folder once; return the configuration's path."""
    ensure_programs()
    jars = ensure_jars()
    data.mkdir(parents=True, exist_ok=True)
    config = data / "server.properties"
    config.write_text(_properties(data, port, controller_port))
    if not (data / "logs" / "meta.properties").exists():
        # An id that begins with a dash would be taken for an option.
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        args = [*_java(jars), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StackError(f"Kafka could not format {data}: {(done.stdout + done.stderr).strip()[-800:]}")
    return config


def command(config: Path) -> list[str]:
    """The broker in the foreground; SIGTERM is its clean stop."""
    return [*_java(jars_dir()), "kafka.Kafka", str(config)]


def tool_command(main_class: str, *args: str) -> list[str]:
    """One of Kafka's own command-line tools by its Java class, such as `kafka.admin.ConfigCommand`."""
    return [*_java(ensure_jars()), main_class, *args]


def is_ready(port: int) -> bool:
    """Tell whether the broker takes connections."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def wait_ready(port: int) -> None:
    """Wait until the broker takes connections.

    Raises:
        StackError: not within `READY_WITHIN_S`.
    """
    wait_until(lambda: is_ready(port), within_s=READY_WITHIN_S, what=f"Kafka on port {port}")


def _fetch_jars(folder: Path) -> None:
    args = ["mvn", "-q", "-B", "-ntp", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(args, capture_output=True, text=True, timeout=FETCH_WITHIN_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise StackError(f"Maven did not fetch Apache Kafka within {FETCH_WITHIN_S} s. {OWN_BROKER}") from error
    if done.returncode != 0:
        raise StackError(f"Maven could not fetch Apache Kafka: {done.stdout.strip()[-800:]} {OWN_BROKER}")


def _java(jars: Path) -> list[str]:
    return [
        "java",
        f"-Xmx{HEAP}",
        "-Xms128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        "-cp",
        f"{jars}/*",
    ]


def _missing_programs() -> dict[str, str]:
    """What is missing in words -> the Debian package that has it."""
    missing: dict[str, str] = {}
    if (_java_major() or 0) < JAVA_MAJOR:
        missing[f"a Java runtime, version {JAVA_MAJOR} or later"] = "default-jre-headless"
    if not jars_dir().exists() and not shutil.which("mvn"):
        missing["Maven"] = "maven"
    return missing


def _java_major() -> int | None:
    if not shutil.which("java"):
        return None
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', said)
    return int(match[1]) if match else None


def _apt_install(packages: list[str]) -> None:
    env = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
    for args in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *args], env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StackError(f"apt-get {args[0]} failed: {done.stderr.strip()[-400:]}. Install {packages} by hand.")


def _properties(data: Path, port: int, controller_port: int) -> str:
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data / "logs"),
        "auto.create.topics.enable": "false",
        "num.partitions": "6",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.min.session.timeout.ms": "1000",
        "log.retention.hours": "168",
        "log.segment.bytes": str(64 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "8000000",
    }
    return "".join(f"{key}={_property(value)}\n" for key, value in lines.items())


def _property(text: str) -> str:
    """Escape a value for a .properties file, which is Latin-1 with Unicode escapes for the rest."""
    return "".join(c if " " <= c <= "~" and c != "\\" else f"\\u{ord(c):04x}" for c in text)
