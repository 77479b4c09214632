-- Files that go with a reply; NULL: none.
ALTER TABLE outbox ADD COLUMN attachments TEXT;

-- Who has spoken.
CREATE TABLE user (
    id           INTEGER PRIMARY KEY,            -- in the order they came
    platform     TEXT NOT NULL,
    external_id  TEXT NOT NULL,
    display_name TEXT,
    created_at   REAL NOT NULL,
    UNIQUE (platform, external_id)
);

-- Conversations that people opened.
CREATE TABLE chat (
    person     TEXT NOT NULL,
    number     INTEGER NOT NULL,
    key        TEXT NOT NULL,                    -- what it was opened for: once
    name       TEXT,
    lane       TEXT,                             -- NULL: it has no place yet
    own_lane   INTEGER NOT NULL DEFAULT 0,       -- the lane is its alone; else it is one session
    session    TEXT,
    source     TEXT,
    archived   INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    PRIMARY KEY (person, number),
    UNIQUE (person, key)
) WITHOUT ROWID;
CREATE INDEX chat_own ON chat (lane) WHERE own_lane;
CREATE INDEX chat_archived ON chat (lane) WHERE own_lane AND archived;
CREATE INDEX chat_unplaced ON chat (created_at) WHERE lane IS NULL;
CREATE INDEX chat_by_session ON chat (session) WHERE session IS NOT NULL;

-- The number of each person's newest chat, whether or not that is still there.
CREATE TABLE chat_count (
    person TEXT PRIMARY KEY,
    last   INTEGER NOT NULL
) WITHOUT ROWID;

-- Where a surface is in its platform's stream of events, and what else it must not forget.
CREATE TABLE mark (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
