"""Clusters to which only Java's clients can log in are refused by a replay, with what to name instead."""

from __future__ import annotations

import pytest

from kdsl import Cluster
from kdsl.diagnostics.replay import replay
from kdsl.errors import DeadLetterError

KERBEROS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required keyTab="/k" principal="p";',
}
JAVA, OTHER = Cluster("java:1", properties=KERBEROS), Cluster("other:1")


@pytest.mark.parametrize(
    ("letters", "target", "fix"),
    [
        (JAVA, None, r"the letters themselves were written by librdkafka, .*scan\.dead-letter\.properties"),
        (JAVA, OTHER, r"the letters themselves were written by librdkafka, .*scan\.dead-letter\.properties"),
        (OTHER, JAVA, r"Kerberos; name listeners with another login \(target=, --to-bootstrap\)"),
    ],
)
def test_only_java_can_log_in(letters: Cluster, target: Cluster | None, fix: str) -> None:
    with pytest.raises(DeadLetterError, match=rf"cannot log in to java:1: .*{fix}"):
        replay(letters, "dead", "original", target=target)
