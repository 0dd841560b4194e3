"""A table that answers one question at a time, over HTTP, and keeps its budget for years.

settings.py   what a service is: a table, its releases, its ledger, its limits (service.toml)
beginning.py  the first release and the ledger
lines.py      one line of the ledger, its hash, and what makes a chain of them believable
storage.py    (and tables.py) the lines in a file (SQLite) or a database (PostgreSQL), opened by one server at a time
witness.py    the last head, beside the ledger: a ledger that was rolled back is refused
keeping.py    the journal of the core, on disk: many questions, one sync
clerk.py      the one thread that asks the table, question after question, and hands replies out once they are on disk
tokens.py     who may ask, as what, and how much of the budget
departures.py answers leave at fixed moments
limits.py     how large, how deep, how often
problems.py   one shape for whatever is refused
routes.py     the HTTP interface; app.py puts it together, serving.py runs it
page/         the web page
client.py     the other end, for Python and for `dualquery ask`
"""
