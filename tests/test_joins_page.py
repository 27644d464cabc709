"""The code of docs/joins.md does what the page says."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdsl import Cluster
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.pages import code_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = Path(__file__).parents[1] / "docs" / "joins.md"
NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_the_joins_of_the_page_return_what_they_show(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    code = code_of(PAGE)
    for name in ("orders", "payments", "customers"):
        code = code.replace(f'topic="{name}"', f'topic="{kdsl_topic(name)}"')
    tables, *rest = code.partition("\norders, payments = ")
    shop = Cluster(kdsl_kafka.bootstrap_servers)
    page: dict[str, Any] = {"__name__": __name__, "spark": spark, "shop": shop}
    exec(compile(tables, str(PAGE), "exec"), page)
    orders, payments, customers = page["Orders"], page["Payments"], page["Customers"]
    orders.write(
        orders.rows(
            [
                orders(order_id=1, customer="Ann", amount=Decimal(5), at=NOON),
                orders(order_id=2, customer="Bob", amount=Decimal(6), at=NOON),
                orders(order_id=3, customer="Ann", amount=Decimal(7), at=NOON + 48 * HOUR),
            ]
        ),
        shop,
    )
    payments.write(
        payments.rows(
            [
                payments(order_id=1, amount=Decimal(5), at=NOON + HOUR),
                payments(order_id=2, amount=Decimal(6), at=NOON + 25 * HOUR),
                payments(order_id=3, amount=Decimal(1), at=NOON + 48 * HOUR),
            ]
        ),
        shop,
    )
    customers.write(
        customers.rows([customers(customer="Ann", city="Rome"), customers(customer="Bob", city="Oslo")]), shop
    )
    exec(compile("".join(rest), str(PAGE), "exec"), page)

    def rows(df: DataFrame) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in df.collect()), key=str)

    def stream_rows(df: DataFrame, name: str) -> list[tuple[Any, ...]]:
        writer = df.writeStream.format("memory").queryName(name).option("checkpointLocation", f"{tmp_path}/{name}")
        assert writer.trigger(availableNow=True).start().awaitTermination(300)
        return rows(spark.table(name))

    assert [row[0] for row in rows(page["paid"])] == [1, 2]
    assert rows(page["late"].selectExpr("order_id", "customer", "int(amount)")) == [(2, "Bob", 6)]
    assert rows(page["again"]) == [("Ann", 1, 3)]
    enriched = page["enriched"].selectExpr("order_id", "int(amount)", "city")
    assert stream_rows(enriched, "enriched") == [(1, 5, "Rome"), (2, 6, "Oslo"), (3, 7, "Rome")]
    matched = page["matched"].selectExpr("order_id", "int(amount)", "int(paid)")
    paid = [row for row in stream_rows(matched, "matched") if row[2] is not None]  # others come with the watermark
    assert paid == [(1, 5, 5), (3, 7, 1)]


def test_the_script_of_the_page_passes_the_check(tmp_path: Path) -> None:
    script = tmp_path / "joins.sql"
    script.write_text(code_of(PAGE, "sql"), encoding="utf-8")

    checked = subprocess.run([sys.executable, "-m", "kdsl", "check", str(script)], capture_output=True, text=True)

    assert checked.stdout.splitlines()[-1] == "2 tables checked: no problems", checked.stdout + checked.stderr
