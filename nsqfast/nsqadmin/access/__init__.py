"""Authentication, permissions and the audit."""
