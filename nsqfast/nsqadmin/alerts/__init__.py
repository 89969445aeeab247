"""What other programs are told: what is wrong now, as JSON, and figures for Prometheus."""
