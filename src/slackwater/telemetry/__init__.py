"""What an attached application tells collectors: metrics for Prometheus and Grafana, spans for OpenTelemetry."""
