"""Public shapes: columns, domain, schema; reading and encoding."""
