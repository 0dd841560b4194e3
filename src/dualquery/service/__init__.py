"""A table that answers one question at a time, over HTTP, and keeps its budget for years.

settings.py   what a service is: a table, its releases, its ledger, its limits (service.toml)
beginning.py  the ledger and the first release of a new one
keeping.py    the journal of the core, on disk (`ledger/journal.py`): many questions, one sync
standing.py   what is spent and left, from the ledger alone
clerk.py      the one thread that asks the table, question after question, and replies once that is on disk
tokens.py     who may ask, as what, and how much of the budget
describing.py what is public about a dataset: attributes, examples, the promise
desk.py       where requests come in: quotas, and replies that were given before
departures.py answers leave at fixed moments
limits.py     how large, how slow, how often, how much a day
connections.py how many at once, and how long until they have asked
tally.py      what is counted: for Prometheus, and for a log
problems.py   one shape for whatever is refused
routes.py     (and shapes.py) the HTTP interface; app.py joins it with page/, listening.py and serving.py run it
client.py     the other end, for Python and for `dualquery ask`
"""
