-- Conversations that programs made.
CREATE TABLE conversation (
    id         TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    lane       TEXT NOT NULL,
    metadata   TEXT NOT NULL,
    created_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX conversation_by_lane ON conversation (lane);

-- What responses and conversations are made of, one by one.
CREATE TABLE item (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL,                  -- a program may give back one that it got
    owner        TEXT NOT NULL,
    request      TEXT,                           -- the response it is of
    conversation TEXT,
    output       INTEGER NOT NULL,               -- 0: it was given, 1: it was answered
    instructs    INTEGER NOT NULL,               -- it says how to answer, and is no message
    body         TEXT NOT NULL
);
CREATE INDEX item_by_id ON item (id);
CREATE INDEX item_by_request ON item (request, number) WHERE request IS NOT NULL;
CREATE INDEX item_by_conversation ON item (conversation, number) WHERE conversation IS NOT NULL;
CREATE INDEX item_instructs ON item (conversation, number) WHERE instructs = 1;
