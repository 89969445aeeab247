"""For benchmarks and tests alone, and in no wheel: loops, a peer that does nothing, and probes."""
