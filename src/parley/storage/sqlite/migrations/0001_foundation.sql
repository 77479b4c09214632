-- Sessions and what was said in them.
CREATE TABLE session (
    id            TEXT PRIMARY KEY,
    lane          TEXT NOT NULL,
    title         TEXT,
    provider      TEXT,
    model         TEXT,
    window_start  INTEGER NOT NULL DEFAULT 0,   -- the first entry later prompts begin with
    revision      INTEGER NOT NULL DEFAULT 0,   -- raised when entries leave the prompt
    turns         INTEGER NOT NULL DEFAULT 0,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    created_at    REAL NOT NULL,
    updated_at    REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX session_by_lane ON session (lane, updated_at);
CREATE INDEX session_by_time ON session (updated_at);

CREATE TABLE turn (
    id         INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again: it names replies
    lane       TEXT NOT NULL,
    session    TEXT NOT NULL,
    generation INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'stopped', 'undone')),
    source     TEXT NOT NULL,
    started_at REAL NOT NULL,
    ended_at   REAL
);
CREATE INDEX turn_running ON turn (lane) WHERE state = 'running';
CREATE INDEX turn_by_session ON turn (session, id);

CREATE TABLE entry (                            -- append-only
    id      INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    turn    INTEGER NOT NULL,
    body    TEXT NOT NULL,
    at      REAL NOT NULL
);
CREATE INDEX entry_by_session ON entry (session, id);

CREATE TABLE usage (                            -- append-only
    id            INTEGER PRIMARY KEY,
    session       TEXT NOT NULL,
    turn          INTEGER NOT NULL,
    provider      TEXT NOT NULL,
    model         TEXT NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    at            REAL NOT NULL
);
CREATE INDEX usage_by_session ON usage (session);
CREATE INDEX usage_by_time ON usage (at);

-- Lanes: one row a conversation, one turn at a time.
CREATE TABLE lane (
    key        TEXT PRIMARY KEY,
    platform   TEXT NOT NULL,
    session    TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('idle', 'ready', 'leased')),
    ready_seq  INTEGER NOT NULL DEFAULT 0,
    owner      TEXT,
    epoch      INTEGER NOT NULL DEFAULT 0,      -- raised at every claim: fences old owners
    generation INTEGER NOT NULL DEFAULT 0       -- raised by people: fences what they stopped
) WITHOUT ROWID;
CREATE INDEX lane_ready ON lane (ready_seq) WHERE state = 'ready';
CREATE INDEX lane_leased ON lane (owner) WHERE state = 'leased';

CREATE TABLE inbox (
    id         INTEGER PRIMARY KEY,
    lane       TEXT NOT NULL,
    dedupe     TEXT NOT NULL UNIQUE,
    kind       TEXT NOT NULL CHECK (kind IN ('message', 'command')),
    payload    TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('queued', 'taken', 'done', 'dropped')),
    turn       INTEGER,
    session    TEXT,                            -- of what no turn took: commands, dropped messages
    not_before REAL,
    at         REAL NOT NULL
);
CREATE INDEX inbox_queued ON inbox (lane, id) WHERE state = 'queued';
CREATE INDEX inbox_commands ON inbox (id) WHERE state = 'queued' AND kind = 'command';
CREATE INDEX inbox_planned ON inbox (not_before) WHERE state = 'queued' AND not_before IS NOT NULL;
CREATE INDEX inbox_by_turn ON inbox (turn) WHERE turn IS NOT NULL;
CREATE INDEX inbox_by_session ON inbox (session) WHERE session IS NOT NULL;

CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again: a late word finds its own
    lane        TEXT NOT NULL,
    platform    TEXT NOT NULL,
    session     TEXT NOT NULL,
    turn        INTEGER,
    dedupe      TEXT NOT NULL UNIQUE,
    source      TEXT NOT NULL,
    text        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    answers     TEXT NOT NULL,                  -- the platform's ids of the messages it answers
    state       TEXT NOT NULL CHECK (state IN ('waiting', 'sending', 'sent', 'unsure', 'dead')),
    owner       TEXT,
    attempts    INTEGER NOT NULL DEFAULT 0,
    next_at     REAL,                           -- NULL: parked until its chat can be reached
    platform_id TEXT,
    why         TEXT,
    at          REAL NOT NULL
);
CREATE INDEX outbox_open ON outbox (lane, id) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_due ON outbox (platform, next_at) WHERE state = 'waiting';
CREATE INDEX outbox_sending ON outbox (owner) WHERE state = 'sending';
CREATE INDEX outbox_doubtful ON outbox (state, id) WHERE state IN ('unsure', 'dead');
CREATE INDEX outbox_by_session ON outbox (session);

-- Time and limits.
CREATE TABLE job (
    id       TEXT PRIMARY KEY,
    lane     TEXT NOT NULL,
    payload  TEXT NOT NULL,
    cron     TEXT,
    timezone TEXT NOT NULL,
    next_at  REAL NOT NULL
);
CREATE INDEX job_due ON job (next_at);

CREATE TABLE bucket (
    user   TEXT PRIMARY KEY,
    tokens REAL NOT NULL,
    at     REAL NOT NULL
) WITHOUT ROWID;
