CREATE TABLE dualquery_books (
    id INTEGER PRIMARY KEY,
    format INTEGER NOT NULL,
    name TEXT NOT NULL UNIQUE,
    nonce TEXT NOT NULL,
    neighbours TEXT NOT NULL,
    currency TEXT NOT NULL CHECK (currency IN ('rho', 'epsilon', 'renyi')),
    epsilon TEXT NOT NULL,
    delta TEXT NOT NULL,
    cap BIGINT NOT NULL CHECK (typeof(cap) = 'integer' AND cap > 0),
    created TEXT NOT NULL,
    origin TEXT NOT NULL,
    spent BIGINT NOT NULL CHECK (typeof(spent) = 'integer' AND spent >= 0),
    CONSTRAINT dualquery_within_the_cap CHECK (spent <= cap)
)

CREATE TABLE dualquery_charges (
    id INTEGER PRIMARY KEY,
    book INTEGER NOT NULL REFERENCES dualquery_books (id),
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    day TEXT NOT NULL,
    release TEXT NOT NULL UNIQUE,
    what TEXT NOT NULL,
    units BIGINT NOT NULL CHECK (typeof(units) = 'integer' AND units > 0),
    spent_after BIGINT NOT NULL CHECK (typeof(spent_after) = 'integer' AND spent_after >= units),
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (book, sequence)
)

CREATE TRIGGER dualquery_books_start_empty BEFORE INSERT ON dualquery_books
WHEN NEW.spent <> 0 OR EXISTS (SELECT 1 FROM dualquery_books WHERE id = NEW.id OR name = NEW.name)
BEGIN SELECT RAISE(ABORT, 'a book begins with nothing spent'); END

CREATE TRIGGER dualquery_books_only_spend BEFORE UPDATE ON dualquery_books
WHEN NEW.spent < OLD.spent OR NEW.id IS NOT OLD.id OR NEW.format IS NOT OLD.format OR NEW.name IS NOT OLD.name
    OR NEW.nonce IS NOT OLD.nonce OR NEW.neighbours IS NOT OLD.neighbours OR NEW.currency IS NOT OLD.currency
    OR NEW.epsilon IS NOT OLD.epsilon OR NEW.delta IS NOT OLD.delta OR NEW.cap IS NOT OLD.cap
    OR NEW.created IS NOT OLD.created OR NEW.origin IS NOT OLD.origin
BEGIN SELECT RAISE(ABORT, 'of a book only what is spent changes, and it only grows'); END

CREATE TRIGGER dualquery_books_stay BEFORE DELETE ON dualquery_books
BEGIN SELECT RAISE(ABORT, 'books are never deleted'); END

CREATE TRIGGER dualquery_charges_follow BEFORE INSERT ON dualquery_charges
WHEN NEW.spent_after IS NOT (SELECT spent FROM dualquery_books WHERE id = NEW.book)
    OR NEW.spent_after - NEW.units IS NOT
        (SELECT COALESCE(MAX(spent_after), 0) FROM dualquery_charges WHERE book = NEW.book)
    OR NEW.sequence IS NOT (SELECT COUNT(*) + 1 FROM dualquery_charges WHERE book = NEW.book)
    OR NEW.previous IS NOT COALESCE(
        (SELECT hash FROM dualquery_charges WHERE book = NEW.book ORDER BY sequence DESC LIMIT 1),
        (SELECT origin FROM dualquery_books WHERE id = NEW.book))
    OR EXISTS (SELECT 1 FROM dualquery_charges WHERE id = NEW.id OR release = NEW.release)
BEGIN SELECT RAISE(ABORT, 'a charge follows the one before'); END

CREATE TRIGGER dualquery_charges_keep BEFORE UPDATE ON dualquery_charges
BEGIN SELECT RAISE(ABORT, 'charges are never changed'); END

CREATE TRIGGER dualquery_charges_stay BEFORE DELETE ON dualquery_charges
BEGIN SELECT RAISE(ABORT, 'charges are never deleted'); END
