"""Ledgers that last: hash-chained lines in a file (SQLite) or a database (PostgreSQL), for years.

chain.py    a line, its hash, what makes a chain of lines believable; the witness of the last head
storage.py  where a ledger is kept, opened so that what is committed is on disk
book.py     the book of a dataset: a cap on all its releases, and what each was charged
books.py    all books of one ledger: create, read, charge
journal.py  the journal of a service: written by one server at a time
"""
