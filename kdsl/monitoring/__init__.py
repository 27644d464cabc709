"""What Grafana and Prometheus need to watch queries, made from the declarations of the metrics: ``kdsl monitor``."""
