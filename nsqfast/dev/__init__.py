"""What serves a checkout and stands in no wheel: `make up`, `make man`, `make samples`."""
