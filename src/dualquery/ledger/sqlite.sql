CREATE TABLE dualquery_chains (
    id INTEGER PRIMARY KEY,
    format INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('book', 'journal')),
    name TEXT NOT NULL,
    nonce TEXT NOT NULL,
    promise TEXT NOT NULL,
    cap BIGINT NOT NULL CHECK (typeof(cap) = 'integer' AND cap > 0),
    created TEXT NOT NULL,
    origin TEXT NOT NULL,
    length BIGINT NOT NULL CHECK (typeof(length) = 'integer' AND length >= 0),
    head TEXT NOT NULL,
    spent BIGINT NOT NULL CHECK (typeof(spent) = 'integer' AND spent >= 0),
    CONSTRAINT dualquery_within_the_cap CHECK (spent <= cap),
    CONSTRAINT dualquery_one_of_a_name UNIQUE (kind, name)
)

CREATE UNIQUE INDEX dualquery_one_journal ON dualquery_chains (kind) WHERE kind = 'journal'

CREATE TABLE dualquery_lines (
    chain INTEGER NOT NULL REFERENCES dualquery_chains (id),
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    kind TEXT NOT NULL,
    analyst TEXT NOT NULL,
    key TEXT,
    request TEXT NOT NULL,
    body TEXT NOT NULL,
    reply TEXT NOT NULL,
    units BIGINT NOT NULL CHECK (typeof(units) = 'integer' AND units >= 0),
    spent_after BIGINT NOT NULL CHECK (typeof(spent_after) = 'integer' AND spent_after >= units),
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (chain, sequence),
    CONSTRAINT dualquery_one_line_a_key UNIQUE (chain, analyst, key)
)

CREATE INDEX dualquery_lines_by_analyst ON dualquery_lines (chain, analyst, sequence)

CREATE TABLE dualquery_wishes (
    id TEXT PRIMARY KEY NOT NULL,
    body TEXT NOT NULL
)

CREATE TRIGGER dualquery_chains_start_empty BEFORE INSERT ON dualquery_chains
WHEN NEW.spent <> 0 OR NEW.length <> 0 OR NEW.head IS NOT NEW.origin
    OR EXISTS (SELECT 1 FROM dualquery_chains WHERE id = NEW.id OR (kind = NEW.kind AND name = NEW.name))
    OR (NEW.kind = 'journal' AND EXISTS (SELECT 1 FROM dualquery_chains WHERE kind = 'journal'))
BEGIN SELECT RAISE(ABORT, 'a chain begins with nothing'); END

CREATE TRIGGER dualquery_chains_only_grow BEFORE UPDATE ON dualquery_chains
WHEN NEW.spent < OLD.spent OR NEW.length <= OLD.length OR NEW.id IS NOT OLD.id OR NEW.format IS NOT OLD.format
    OR NEW.kind IS NOT OLD.kind OR NEW.name IS NOT OLD.name OR NEW.nonce IS NOT OLD.nonce
    OR NEW.promise IS NOT OLD.promise OR NEW.cap IS NOT OLD.cap OR NEW.created IS NOT OLD.created
    OR NEW.origin IS NOT OLD.origin
BEGIN SELECT RAISE(ABORT, 'a chain only grows, and its promise stays'); END

CREATE TRIGGER dualquery_chains_stay BEFORE DELETE ON dualquery_chains
BEGIN SELECT RAISE(ABORT, 'chains are never deleted'); END

CREATE TRIGGER dualquery_lines_follow BEFORE INSERT ON dualquery_lines
WHEN NEW.sequence IS NOT (SELECT COALESCE(MAX(sequence), 0) + 1 FROM dualquery_lines WHERE chain = NEW.chain)
    OR NEW.spent_after - NEW.units IS NOT COALESCE(
        (SELECT spent_after FROM dualquery_lines WHERE chain = NEW.chain ORDER BY sequence DESC LIMIT 1), 0)
    OR NEW.previous IS NOT COALESCE(
        (SELECT hash FROM dualquery_lines WHERE chain = NEW.chain ORDER BY sequence DESC LIMIT 1),
        (SELECT origin FROM dualquery_chains WHERE id = NEW.chain))
    OR NOT EXISTS (SELECT 1 FROM dualquery_chains WHERE id = NEW.chain AND (NEW.sequence < length
        OR (NEW.sequence = length AND NEW.spent_after = spent AND NEW.hash = head)))
    OR EXISTS (SELECT 1 FROM dualquery_lines
        WHERE chain = NEW.chain AND analyst = NEW.analyst AND key = NEW.key)
BEGIN SELECT RAISE(ABORT, 'a line follows the one before'); END

CREATE TRIGGER dualquery_lines_keep BEFORE UPDATE ON dualquery_lines
BEGIN SELECT RAISE(ABORT, 'lines are never changed'); END

CREATE TRIGGER dualquery_lines_stay BEFORE DELETE ON dualquery_lines
BEGIN SELECT RAISE(ABORT, 'lines are never deleted'); END
