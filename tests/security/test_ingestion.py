"""No secret of an ingestion is in anything that its commands print, raise, write down or send."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kdsl.testing import LocalKafka
from kdsl.testing.security import jaas
from tests.postgres import PASSWORD as DATABASE_PASSWORD, Postgres, missing
from tests.security.conftest import PASSWORD, USER

ROOT = Path(__file__).parents[2]
WRONG = "wr0ng-database-passw0rd"
SECRETS = {"the user's password": PASSWORD, "the database's": DATABASE_PASSWORD, "a wrong one": WRONG}


def login(password: str) -> str:
    return jaas("PlainLoginModule", username=USER, password=password)


def cluster(kafka: LocalKafka, config: str) -> dict[str, str]:
    plain = kafka.through("sasl_plain")
    return {
        "properties.bootstrap.servers": plain.bootstrap_servers,
        "properties.security.protocol": "SASL_PLAINTEXT",
        "properties.sasl.mechanism": "PLAIN",
        "properties.sasl.jaas.config": config,
    }


@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.reliability
@pytest.mark.timeout(1500)
def test_no_secret_is_in_any_output(secure_kafka: LocalKafka, tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    out, values = tmp_path / "out", tmp_path / "given"
    (out / "events").mkdir(parents=True)
    values.mkdir()
    (values / "password").write_text(PASSWORD, encoding="utf-8")
    plaintext = secure_kafka.through("plaintext")
    for topic in ("ingested", "dead", "copied"):
        plaintext.create_topic(topic)
    plaintext.produce("ingested", '{"id": 1, "n": "x"}', "nonsense", '{"id": 2}')
    outputs: dict[str, str] = {}

    def kdsl(*arguments: str, code: int = 0) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "kdsl", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "formats")]),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "KDSL_TEST_SECRET": PASSWORD,
                "KDSL_TEST_JAAS": login(PASSWORD),
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        outputs[f"{len(outputs)}: kdsl {' '.join(arguments[:3])}"] = done.stdout + done.stderr

    with Postgres() as postgres:
        source = {
            "type": "kafka", "topic": "ingested", "value.format": "json", "scan.startup.mode": "earliest-offset",
            "ingestion.ignore-errors": "true",
        }  # fmt: skip
        rules = [{"source-table": r"\.*", "primary-keys": "id"}]
        collector = {"type": "kafka", "topic": "dead", **cluster(secure_kafka, "${env:KDSL_TEST_JAAS}")}
        documents: dict[str, dict[str, Any]] = {
            "into-postgres": {
                "source": {**source, **cluster(secure_kafka, login(f"${{file:{values}/password}}"))},
                "sink": {"type": "jdbc", "url": f"{postgres.url}?password={DATABASE_PASSWORD}", "username": "kdsl"},
                "transform": rules,
                "route": [{"source-table": r"\.*", "sink-table": "public.ingested"}],
                "pipeline": {"dirty-data.collector": collector},
            },
            "into-kafka": {
                "source": {**source, **cluster(secure_kafka, "${own.jaas}")},
                "sink": {
                    "type": "kafka", "topic": "copied", **cluster(secure_kafka, login("${env:KDSL_TEST_SECRET}")),
                },
                "transform": rules,
            },
            "fails": {
                "source": {**source, **cluster(secure_kafka, login(PASSWORD))},
                "sink": {"type": "jdbc", "url": postgres.url, "username": "kdsl", "password": WRONG},
                "transform": rules,
                "route": [{"source-table": r"\.*", "sink-table": "public.ingested"}],
            },
        }  # fmt: skip
        settings = ("-c", "spark.eventLog.enabled=true", "-c", f"spark.eventLog.dir=file://{out}/events")
        for name, document in documents.items():
            file, checkpoint = str(values / f"{name}.yaml"), ("--checkpoint", str(out / name))
            Path(file).write_text(yaml.safe_dump(document), encoding="utf-8")
            variables = ("--var", f"own.jaas={login(PASSWORD)}") if name == "into-kafka" else ()
            kdsl("check", file, *variables)
            kdsl("plan", file, *variables)
            kdsl("ingest", file, "--dry-run", "--sample", *variables)
            kdsl("ingest", file, "--once", *checkpoint, *variables, *settings, code=name == "fails")
            if name != "fails":
                kdsl("ingest", file, "--status", *checkpoint, *variables)
                kdsl("ingest", file, "--schemas", "--history", *checkpoint, *variables)
        written_out = documents["into-postgres"]
        written_out["pipeline"]["dirty-data.collector"] |= cluster(secure_kafka, login(PASSWORD))
        file = str(values / "written-out.yaml")
        Path(file).write_text(yaml.safe_dump(written_out), encoding="utf-8")
        kdsl("check", file, code=1)
        assert postgres.execute("SELECT id FROM ingested ORDER BY id").split() == ["1", "2"]

    letters, copies = plaintext.read("dead"), plaintext.read("copied")
    assert (len(letters), len(copies)) == (1, 2)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert any("events" in str(path) for path in files)
    assert any("schemas" in str(path) for path in files)
    outputs |= {str(path.relative_to(out)): path.read_bytes().decode("latin-1") for path in files}
    outputs["letters"] = str([(letter.key(), letter.value(), letter.headers()) for letter in letters])
    outputs["the brokers' log"] = secure_kafka.log()
    leaks = [f"{what} in {where}" for what, secret in SECRETS.items() for where in outputs if secret in outputs[where]]
    assert leaks == []
