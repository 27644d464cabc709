"""Tables from Flink SQL: `script_reader` reads scripts into statements, and `tables` turns statements into tables."""
