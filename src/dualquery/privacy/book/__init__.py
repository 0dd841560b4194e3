"""The books: one for each dataset, on disk, which add up what all releases of it may have cost.

book.py       the values: a book, a charge, the entry that a certificate shows
chain.py      the hashes, and what makes a book believable
place.py      a file (SQLite) or a URL (PostgreSQL), opened so that a charge is on disk when it is accepted
tables.py     two tables; sqlite.sql and postgresql.sql hold their constraints and triggers
books.py      create, read, charge
prepaid.py    the ledger of a release that is charged to a book before it pays for anything
"""
