"""Output for other programs: current problems as JSON, and figures for Prometheus."""
