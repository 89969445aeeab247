"""What one trial of a scenario measured."""

from __future__ import annotations

# Figures by name: "rate" always; "count", "cpu_us" and "latency_s" if the scenario has them.
Sample = dict[str, float]
