"""An archive of the classes that Spark loads, which halves the CPU time that a JVM of the tests takes to start.

Spark's class path has 280 jars. A JVM that has the archive maps the classes that it would otherwise search all of them
for, read and verify (https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html). The archive depends on the
JVM and on the jars, is about 150 MB, and is stored with kdsl's other files that can be created again. A JVM that it
does not fit ignores it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from kdsl.folders import cache_dir


def archive_path() -> Path | None:
    """The file of the archive for the Java and the Spark of this process; None where one of them is missing."""
    java, pyspark = shutil.which("java"), find_spec("pyspark")
    if java is None or pyspark is None or pyspark.origin is None:
        return None
    jars = Path(pyspark.origin).parent / "jars"
    files = [Path(java).resolve(), *sorted(jars.glob("*.jar"))]
    described = "\n".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    return cache_dir() / "class-archives" / f"{hashlib.sha256(described.encode()).hexdigest()[:16]}.jsa"


def java_options() -> str:
    """The options of a JVM that uses the archive; empty while there is none."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path} -Xlog:disable -Xlog:all=error:stderr" if path and path.exists() else ""


def write_archive() -> None:
    """Write the archive if there is none yet, and no other process is writing it."""
    path = archive_path()
    if path is None or path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        new = path.with_suffix(f".{os.getpid()}")
        subprocess.run([sys.executable, __file__, str(new)], check=True, capture_output=True)
        if new.exists():
            new.rename(path)


def _load_classes(archive: str) -> None:
    """Let Spark do a little of everything that tests do, in a JVM that writes the archive when it ends."""
    from pyspark.sql import SparkSession, functions as F

    from kdsl.run.dataframes.collect import collect_arrow

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable")
        .getOrCreate()
    )
    numbers = spark.range(100).withColumn("group", F.col("id") % 7)
    sums = numbers.groupBy("group").agg(F.sum("id"), F.collect_list("id"))
    collect_arrow(sums.join(numbers, "group").orderBy("id"))
    numbers.mapInArrow(lambda batches: batches, numbers.schema).collect()
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    query = counts.writeStream.format("memory").queryName("counts").outputMode("update").start()
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    _load_classes(sys.argv[1])
