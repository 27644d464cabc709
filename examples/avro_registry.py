"""Avro with a schema registry: a table gets another column, and reads messages of both versions.

Run it with ``python examples/avro_registry.py host:port http://registry:8081``; ``kdsl kafka start --registry`` runs
both on this machine. It writes payments as two versions of a program do, and reads all of them with the newer table.
"""

from __future__ import annotations

import sys
from decimal import Decimal

from pyspark.sql import DataFrame, SparkSession

from kdsl import AvroConfluent, Cluster, Col, KafkaTable, Registry, Virtual, col, virtual


class Payments(KafkaTable):
    """The columns of both versions."""

    id: Col[str]
    amount: Col[Decimal] = col(type="DECIMAL(10, 2)")


class PaymentsOfMay(Payments, topic="till-payments", value=AvroConfluent(), startup="earliest"):
    """The first version."""


class PaymentsOfJune(Payments, topic="till-payments", value=AvroConfluent(), startup="earliest"):
    """The second version: the new column is nullable, because older messages have no value for it."""

    voucher: Col[str | None] = col(default=None)
    schema_id: Virtual[int | None] = virtual("value.schema-id")


def run(spark: SparkSession, cluster: Cluster) -> DataFrame:
    """Write with both tables, read with the newer one."""
    PaymentsOfMay.write(PaymentsOfMay.rows([PaymentsOfMay(id="m1", amount=Decimal("9.50"))], spark=spark), cluster)
    june = [PaymentsOfJune(id="j1", amount=Decimal("20.00"), voucher="SUMMER")]
    PaymentsOfJune.write(PaymentsOfJune.rows(june, spark=spark), cluster)
    return PaymentsOfJune.read(spark, cluster).orderBy("id")


if __name__ == "__main__":
    brokers, registry = sys.argv[1:3]
    run(SparkSession.builder.getOrCreate(), Cluster(brokers, registry=Registry(registry))).show()
