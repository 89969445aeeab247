"""Man pages and sample config files, made from the options of every program."""
