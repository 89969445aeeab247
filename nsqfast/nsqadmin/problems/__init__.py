"""What is wrong in the cluster: rules, cases, silences, and who is told of it."""
