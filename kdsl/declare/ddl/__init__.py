"""Flink's SQL as a way to declare: scripts to statements (`parser`), statements to tables (`tables`)."""
