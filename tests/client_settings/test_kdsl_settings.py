from __future__ import annotations

import pytest

from kdsl.client_settings.kdsl_settings import KdslSettings, kdsl_settings


def test_unset_options_have_the_connector_s_defaults() -> None:
    assert kdsl_settings({}) == KdslSettings(
        group_id=None,
        client_id_prefix=None,
        discovery_interval_ms=None,
        commit_on_checkpoint=True,
        auto_commit=False,
        auto_commit_interval_ms=5000,
        auto_offset_reset=None,
        exclude_internal_topics=True,
        auto_create_topics=True,
        register_consumer_metrics=True,
        register_producer_metrics=True,
        idempotence=None,
        acks="all",
        transaction_timeout_ms=None,
        api_timeout_ms=60_000,
        max_block_ms=60_000,
    )


def test_every_setting_of_the_connector_is_read() -> None:
    settings = {
        "group.id": "g",
        "client.id.prefix": "p",
        "client.id": "unused beside the prefix",
        "partition.discovery.interval.ms": "-1",
        "commit.offsets.on.checkpoint": "FALSE",
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": "1000",
        "auto.offset.reset": "Earliest",
        "exclude.internal.topics": "false",
        "allow.auto.create.topics": "false",
        "register.consumer.metrics": "false",
        "register.producer.metrics": "false",
        "enable.idempotence": "false",
        "acks": "1",
        "transaction.timeout.ms": "900000",
        "default.api.timeout.ms": "0",
        "max.block.ms": "7",
    }

    assert kdsl_settings(settings) == KdslSettings(
        "g", "p", -1, False, True, 1000, "earliest", False, False, False, False, False, "1", 900_000, 0, 7
    )


def test_the_prefix_is_the_default_client_id() -> None:
    assert kdsl_settings({"client.id": "me"}).client_id_prefix == "me"


@pytest.mark.parametrize("value", ["earliest", "LATEST", "None"])
def test_the_reset_comes_in_any_letter_case(value: str) -> None:
    assert kdsl_settings({"auto.offset.reset": value}).auto_offset_reset == value.lower()


def test_a_wrong_value_or_a_reference_counts_as_unset() -> None:
    settings = {"auto.offset.reset": "error", "enable.auto.commit": "maybe", "max.block.ms": "${env:MS}"}

    assert kdsl_settings(settings) == KdslSettings()


def test_a_reference_counts_once_it_is_resolved() -> None:
    assert kdsl_settings({"max.block.ms": "${env:MS}"}, lambda _: "9").max_block_ms == 9
