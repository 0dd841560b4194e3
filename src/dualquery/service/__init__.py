"""A table that answers one question at a time, over HTTP, and keeps its budget for years.

settings.py   what a service is: a table, its releases, its ledger, its limits (service.toml): how large, how slow,
              how often; when answers leave; what is refused; what is counted
run.py        a new one: its ledger and first release; one that is opened from its file and run until it is stopped
journal.py    the journal of the core, on disk (`ledger/journal.py`): many questions, one sync; what is spent and left
worker.py     the one thread that asks the table, question after question, and replies once that is on disk
requests.py   where requests come in: quotas, replies that were given before, what is public about a dataset
tokens.py     who may ask, as what, and how much of the budget
routes.py     the HTTP interface
app.py        the application: routes, page/, and how uvicorn runs it
client.py     the other end, for Python and for `dualquery ask`
"""
