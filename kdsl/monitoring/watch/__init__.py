"""A page of running queries: ``kdsl watch`` asks jobs for their metrics, as Prometheus does, and shows them with plots.

The endpoints that `kdsl.serve_metrics` serves are the only source. So the page shows what Prometheus would, of jobs of
any supported Spark, classic or Connect, here or behind a forwarded port; a job needs nothing that it does not need for
Prometheus, and the page outlives its restarts.
"""
