CREATE TABLE dualquery_service (
    id BIGINT PRIMARY KEY CONSTRAINT dualquery_service_only_one CHECK (id = 1),
    format BIGINT NOT NULL,
    dataset TEXT NOT NULL,
    nonce TEXT NOT NULL,
    promise TEXT NOT NULL,
    cap BIGINT NOT NULL CONSTRAINT dualquery_service_some_cap CHECK (cap > 0),
    created TEXT NOT NULL,
    origin TEXT NOT NULL,
    length BIGINT NOT NULL CONSTRAINT dualquery_service_length CHECK (length >= 0),
    head TEXT NOT NULL,
    spent BIGINT NOT NULL CONSTRAINT dualquery_service_no_debt CHECK (spent >= 0),
    CONSTRAINT dualquery_service_within_the_cap CHECK (spent <= cap)
)

CREATE TABLE dualquery_service_lines (
    sequence BIGINT PRIMARY KEY CONSTRAINT dualquery_service_counted_from_one CHECK (sequence > 0),
    kind TEXT NOT NULL,
    analyst TEXT NOT NULL,
    key TEXT,
    request TEXT NOT NULL,
    body TEXT NOT NULL,
    reply TEXT NOT NULL,
    units BIGINT NOT NULL CONSTRAINT dualquery_service_no_refund CHECK (units >= 0),
    spent_after BIGINT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    CONSTRAINT dualquery_service_added_up CHECK (spent_after >= units),
    CONSTRAINT dualquery_service_one_reply_a_key UNIQUE (analyst, key)
)

CREATE INDEX dualquery_service_by_analyst ON dualquery_service_lines (analyst, sequence)

CREATE TABLE dualquery_service_wishes (
    id TEXT PRIMARY KEY NOT NULL,
    body TEXT NOT NULL
)

CREATE FUNCTION dualquery_service_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'what stands in a ledger is never changed or deleted' USING ERRCODE = 'check_violation'; END $$

CREATE FUNCTION dualquery_service_only_spend() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.spent < OLD.spent OR NEW.length <= OLD.length
        OR (to_jsonb(NEW) - '{spent,length,head}'::text[])
            IS DISTINCT FROM (to_jsonb(OLD) - '{spent,length,head}'::text[]) THEN
        RAISE EXCEPTION 'what is spent only grows, and the promise stays' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$

CREATE FUNCTION dualquery_service_follow() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before RECORD;
BEGIN
    SELECT sequence, spent_after, hash INTO before FROM dualquery_service_lines ORDER BY sequence DESC LIMIT 1;
    IF NEW.sequence IS DISTINCT FROM COALESCE(before.sequence, 0) + 1
        OR NEW.spent_after - NEW.units IS DISTINCT FROM COALESCE(before.spent_after, 0)
        OR NEW.previous IS DISTINCT FROM COALESCE(before.hash, (SELECT origin FROM dualquery_service)) THEN
        RAISE EXCEPTION 'a line follows the one before' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$

CREATE TRIGGER dualquery_service_only_spends BEFORE UPDATE ON dualquery_service
FOR EACH ROW EXECUTE FUNCTION dualquery_service_only_spend()

CREATE TRIGGER dualquery_service_stays BEFORE DELETE OR TRUNCATE ON dualquery_service
FOR EACH STATEMENT EXECUTE FUNCTION dualquery_service_refuse()

CREATE TRIGGER dualquery_service_lines_follow BEFORE INSERT ON dualquery_service_lines
FOR EACH ROW EXECUTE FUNCTION dualquery_service_follow()

CREATE TRIGGER dualquery_service_lines_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON dualquery_service_lines
FOR EACH STATEMENT EXECUTE FUNCTION dualquery_service_refuse()
