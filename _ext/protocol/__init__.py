"""What travels: buffers, commands and frames of protocol V2, plain HTTP publishes, blocks of records."""
