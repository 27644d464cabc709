"""W4: no secret of any kind is in anything that kdsl or Spark prints, logs, raises, pickles or writes down."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.testing import LocalKafka
from kdsl.testing.security import jaas
from tests.security.conftest import DECLARED, PASSWORD, USER

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
REGISTRY = "reg1stry-passw0rd"
WRONG, UNKNOWN, BROKEN = "wr0ng-passw0rd", "unkn0wn-setting-value", "br0ken-jaas-passw0rd"
CASES = ("SCRAM-SHA-512", "mutual TLS, PEM texts", "mutual TLS, JKS", "OAUTHBEARER, identity provider")
PROVIDER = "def give(key):\n    return {'kafka-password': 'pa55-of-the-user'}[key]\n"


def documents(kafka: LocalKafka, folder: Path) -> dict[str, object]:
    """What the other process uses."""
    declared = {name: DECLARED[name](kafka) for name in CASES}
    clusters = {name: (kafka.through(kind).bootstrap_servers, item) for name, (kind, item) in declared.items()}
    (folder / "password").write_text(PASSWORD)
    plain = kafka.through("sasl_plain")
    for kind, reference in {
        "environment": "${env:KDSL_TEST_SECRET}",
        "file": f"${{file:{folder}/password}}",
        "any provider": "${secret_values.kafka-password}",
        "provider": "${test-vault:kafka-password}",
    }.items():
        login = {"sasl.jaas.config": jaas("PlainLoginModule", username=USER, password=reference)}
        clusters[kind] = (plain.bootstrap_servers, {**plain.java_properties, **login})
    wrong = jaas("PlainLoginModule", username=USER, password=WRONG)
    stores = declared["mutual TLS, JKS"][1]
    failing = {
        "a wrong password": (plain.bootstrap_servers, {**plain.java_properties, "sasl.jaas.config": wrong}),
        "a wrong store password": (
            clusters["mutual TLS, JKS"][0],
            {**stores, "ssl.keystore.password": WRONG},
        ),
        "a JAAS text that cannot be read": (
            plain.bootstrap_servers,
            {**plain.java_properties, "sasl.jaas.config": f'a.PlainLoginModule required password="{BROKEN}'},
        ),
        "a misspelled name": (plain.bootstrap_servers, {**plain.java_properties, "sasl.pasword": UNKNOWN}),
    }
    yaml = [
        f"tables:\n- name: t\n  topic: t\n  properties.sasl.jaas.config: [{BROKEN}]\n",
        f"clusters:\n  a:\n    bootstrap_servers: h:1\n    properties:\n      sasl.password: [{BROKEN}]\n",
        f"clusters:\n  a:\n    bootstrap_servers: h:1\n    properties: {{sasl.pasword: {UNKNOWN}}}\n",
    ]
    return {
        "clusters": clusters,
        "failing": failing,
        "yaml": yaml,
        "plaintext": kafka.through("plaintext").bootstrap_servers,
        "registry": REGISTRY,
        "streams": {"SCRAM-SHA-512": "stream", CASES[1]: "stream"},
    }


def secrets(kafka: LocalKafka) -> dict[str, str]:
    """Every secret, by what it is."""
    key = kafka.certificates.user(USER).key_pem().split("-----")[2].strip()
    return {
        "the user's password": PASSWORD,
        "the stores' password": kafka.certificates.password,
        "the key's password": "key-secret",
        "the key": key.splitlines()[0],
        "a wrong password": WRONG,
        "a misspelled setting": UNKNOWN,
        "a broken JAAS text": BROKEN,
        "a registry's password": REGISTRY,
        "a registry's login": base64.b64encode(f"me:{REGISTRY}".encode()).decode(),
        "a token": base64.urlsafe_b64encode(b'{"alg":"RS256"').decode().rstrip("=")[:16],
    }


@pytest.mark.timeout(1500)
@pytest.mark.reliability
def test_no_secret_is_in_any_output(secure_kafka: LocalKafka, tmp_path: Path) -> None:
    values, out = tmp_path / "given", tmp_path / "out"
    for folder in (values, out, out / "events"):
        folder.mkdir()
    info = values / "test_vault-1.dist-info"
    info.mkdir()
    (values / "test_vault.py").write_text(PROVIDER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: test-vault\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[kdsl.secrets]\ntest-vault = test_vault:give\n")
    (values / "declared.json").write_text(json.dumps(documents(secure_kafka, values)))
    plaintext = secure_kafka.through("plaintext")
    plaintext.create_missing({f"{name}-{n}": 1 for name in ("secret", "failing") for n in (*range(8), "registry")})

    path = [str(ROOT), str(ROOT / "formats"), str(values), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "security" / "every_output.py"), str(values / "declared.json"), str(out)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "KDSL_TEST_SECRET": PASSWORD,
        },
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.rstrip().endswith("all done")
    files = [path for path in out.rglob("*") if path.is_file()]
    assert any("checkpoint-" in str(path) for path in files)
    assert any("events" in str(path) for path in files)
    texts = {"stdout": done.stdout, "stderr": done.stderr, "the brokers' log": secure_kafka.log()}
    texts |= {str(path.relative_to(out)): path.read_bytes().decode("latin-1") for path in files}
    results = [
        f"{what} in {where}: …{text[max(0, text.index(secret) - 150) : text.index(secret)]}"
        for what, secret in secrets(secure_kafka).items()
        for where, text in texts.items()
        if secret in text
    ]
    assert results == []
