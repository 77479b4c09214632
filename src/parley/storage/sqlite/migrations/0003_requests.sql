-- What a program asked for along with its message: kept until its turn is over.
ALTER TABLE inbox ADD COLUMN request TEXT;
ALTER TABLE inbox ADD COLUMN lasting INTEGER;    -- NULL: it is no request
CREATE INDEX inbox_unwaited ON inbox (id) WHERE lasting = 0 AND state IN ('queued', 'taken');

-- Requests that outlive their connection, and what became of them.
CREATE TABLE request (
    id          TEXT PRIMARY KEY,
    kind        TEXT NOT NULL,
    owner       TEXT NOT NULL,
    lane        TEXT NOT NULL,
    dedupe      TEXT NOT NULL,                   -- the name of its message in the inbox
    state       TEXT NOT NULL
        CHECK (state IN ('queued', 'running', 'stopping', 'done', 'failed', 'stopped')),
    body        TEXT NOT NULL,
    result      TEXT,
    key         TEXT UNIQUE,
    fingerprint TEXT,
    expires_at  REAL,
    created_at  REAL NOT NULL,
    ended_at    REAL,
    CHECK ((ended_at IS NULL) = (state IN ('queued', 'running', 'stopping')))
);
CREATE INDEX request_open ON request (lane) WHERE ended_at IS NULL;
CREATE INDEX request_by_message ON request (dedupe);
CREATE INDEX request_expiring ON request (expires_at)
    WHERE ended_at IS NOT NULL AND expires_at IS NOT NULL;

CREATE TABLE request_event (                     -- append-only
    request TEXT NOT NULL,
    number  INTEGER NOT NULL,                    -- from 1, without a gap
    kind    TEXT NOT NULL,
    data    TEXT NOT NULL,
    at      REAL NOT NULL,
    PRIMARY KEY (request, number)
) WITHOUT ROWID;
