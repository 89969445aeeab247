"""Connections, who asks and what they may do, the answer to every request, and the audit."""
