"""The program nsqfast-bench: a shell around the compiled load generator."""
