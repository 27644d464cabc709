"""Creates SCRAM users in a running cluster."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ScramCredentialInfo,  # pyright: ignore[reportPrivateImportUsage]
    ScramMechanism,  # pyright: ignore[reportPrivateImportUsage]
    UserScramCredentialAlteration,  # pyright: ignore[reportPrivateImportUsage]
    UserScramCredentialUpsertion,  # pyright: ignore[reportPrivateImportUsage]
)

from kdsl.testing.running import RunningKafka, convert_errors
from kdsl.testing.security import Users

_ITERATIONS = 4096  # the minimum of Kafka


def store_users(kafka: RunningKafka, users: Users) -> None:
    """Create or replace the SCRAM-SHA-256 and SCRAM-SHA-512 credentials of users, with which they can log in.

    Raises:
        LocalKafkaError: The broker refuses to store a credential, or does not answer.
    """
    admin = kafka.admin()
    for mechanism in (
        ScramMechanism.SCRAM_SHA_256,
        ScramMechanism.SCRAM_SHA_512,
    ):  # a user may occur once in a request
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, _ITERATIONS), password.encode())
            for user, password in users.items()
        ]
        for name, future in admin.alter_user_scram_credentials(wanted).items():
            with convert_errors(f"User {name!r} cannot be created"):
                future.result(60)
