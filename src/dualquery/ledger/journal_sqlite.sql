CREATE TABLE dualquery_service (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    format INTEGER NOT NULL,
    dataset TEXT NOT NULL,
    nonce TEXT NOT NULL,
    promise TEXT NOT NULL,
    cap BIGINT NOT NULL CHECK (typeof(cap) = 'integer' AND cap > 0),
    created TEXT NOT NULL,
    origin TEXT NOT NULL,
    length BIGINT NOT NULL CHECK (typeof(length) = 'integer' AND length >= 0),
    head TEXT NOT NULL,
    spent BIGINT NOT NULL CHECK (typeof(spent) = 'integer' AND spent >= 0),
    CONSTRAINT dualquery_service_within_the_cap CHECK (spent <= cap)
)

CREATE TABLE dualquery_service_lines (
    sequence INTEGER PRIMARY KEY CHECK (sequence > 0),
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
    CONSTRAINT dualquery_service_one_reply_a_key UNIQUE (analyst, key)
)

CREATE INDEX dualquery_service_by_analyst ON dualquery_service_lines (analyst, sequence)

CREATE TABLE dualquery_service_wishes (
    id TEXT PRIMARY KEY NOT NULL,
    body TEXT NOT NULL
)

CREATE TRIGGER dualquery_service_only_spends BEFORE UPDATE ON dualquery_service
WHEN NEW.spent < OLD.spent OR NEW.length <= OLD.length OR NEW.id IS NOT OLD.id OR NEW.format IS NOT OLD.format
    OR NEW.dataset IS NOT OLD.dataset OR NEW.nonce IS NOT OLD.nonce OR NEW.promise IS NOT OLD.promise
    OR NEW.cap IS NOT OLD.cap OR NEW.created IS NOT OLD.created OR NEW.origin IS NOT OLD.origin
BEGIN SELECT RAISE(ABORT, 'what is spent only grows, and the promise stays'); END

CREATE TRIGGER dualquery_service_stays BEFORE DELETE ON dualquery_service
BEGIN SELECT RAISE(ABORT, 'a ledger is never deleted'); END

CREATE TRIGGER dualquery_service_lines_follow BEFORE INSERT ON dualquery_service_lines
WHEN NEW.sequence IS NOT (SELECT COALESCE(MAX(sequence), 0) + 1 FROM dualquery_service_lines)
    OR NEW.spent_after - NEW.units IS NOT COALESCE(
        (SELECT spent_after FROM dualquery_service_lines ORDER BY sequence DESC LIMIT 1), 0)
    OR NEW.previous IS NOT COALESCE(
        (SELECT hash FROM dualquery_service_lines ORDER BY sequence DESC LIMIT 1),
        (SELECT origin FROM dualquery_service))
BEGIN SELECT RAISE(ABORT, 'a line follows the one before'); END

CREATE TRIGGER dualquery_service_lines_keep BEFORE UPDATE ON dualquery_service_lines
BEGIN SELECT RAISE(ABORT, 'lines are never changed'); END

CREATE TRIGGER dualquery_service_lines_stay BEFORE DELETE ON dualquery_service_lines
BEGIN SELECT RAISE(ABORT, 'lines are never deleted'); END
