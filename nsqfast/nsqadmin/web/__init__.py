"""Pages: their requests, Views, tables, charts, templates and files."""
