-- How far a session was tended. What was said before this version is left as it is.
ALTER TABLE session ADD COLUMN learned INTEGER NOT NULL DEFAULT 0;  -- facts were taken up to here
ALTER TABLE session ADD COLUMN folded INTEGER NOT NULL DEFAULT 0;   -- the summary ends before it
ALTER TABLE session ADD COLUMN summary TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN tend_at REAL;                        -- NULL: nothing to do
UPDATE session SET folded = window_start,
    learned = coalesce((SELECT max(id) FROM entry WHERE entry.session = session.id), 0);
CREATE INDEX session_untended ON session (tend_at) WHERE tend_at IS NOT NULL;

-- What is remembered.
CREATE TABLE fact (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again: people name facts by it
    place       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    text        TEXT NOT NULL,
    form        TEXT NOT NULL,                  -- the text as it is compared
    confidence  REAL NOT NULL,
    origin      TEXT NOT NULL,
    person      TEXT NOT NULL,
    said_at     REAL NOT NULL,
    at          REAL NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('current', 'replaced', 'removed')),
    replaced_by INTEGER,
    CHECK ((replaced_by IS NOT NULL) = (state = 'replaced'))
);
CREATE INDEX fact_by_place ON fact (place, id);
CREATE INDEX fact_by_form ON fact (place, form);
CREATE UNIQUE INDEX fact_known ON fact (place, form) WHERE state = 'current';
CREATE INDEX fact_replaced ON fact (replaced_by) WHERE replaced_by IS NOT NULL;

CREATE TABLE fact_source (
    fact  INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    used  INTEGER NOT NULL DEFAULT 1,           -- 0: an undo took it away; commits still name it
    PRIMARY KEY (fact, entry)
) WITHOUT ROWID;
CREATE INDEX fact_source_by_entry ON fact_source (entry);

CREATE VIEW remembered AS
SELECT f.*,
    (SELECT json_group_array(s.entry) FROM fact_source s WHERE s.fact = f.id AND s.used) AS sources,
    (SELECT e.session FROM fact_source s JOIN entry e ON e.id = s.entry
        WHERE s.fact = f.id AND s.used ORDER BY s.entry DESC LIMIT 1) AS session
FROM fact f;

-- How it came to be so.
CREATE TABLE memory_commit (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    kind           TEXT NOT NULL,
    place          TEXT NOT NULL,
    at             REAL NOT NULL,
    by             TEXT NOT NULL,
    note           TEXT NOT NULL,
    session        TEXT,
    first          INTEGER,
    last           INTEGER,
    folded_before  INTEGER,                     -- NULL: nothing was folded
    folded_since   INTEGER,
    window_before  INTEGER,
    summary_before TEXT,
    summary_since  TEXT,
    undone_by      INTEGER,
    added          INTEGER NOT NULL DEFAULT 0,
    removed        INTEGER NOT NULL DEFAULT 0,
    forgotten      TEXT,                        -- what went for good: numbers and kinds, no words
    dedupe         TEXT UNIQUE
);
CREATE INDEX memory_commit_by_place ON memory_commit (place, id);
CREATE INDEX memory_commit_by_session ON memory_commit (session, id) WHERE session IS NOT NULL;

CREATE TABLE memory_change (
    id        INTEGER PRIMARY KEY,
    commit_id INTEGER NOT NULL,
    fact      INTEGER NOT NULL,
    action    TEXT NOT NULL,
    before    TEXT,
    after     TEXT
);
CREATE INDEX memory_change_by_commit ON memory_change (commit_id, id);
CREATE INDEX memory_change_by_fact ON memory_change (fact);

-- Where it is remembered, and the view of it as it was last written.
CREATE TABLE memory_place (
    place        TEXT PRIMARY KEY,
    version      INTEGER NOT NULL,
    view_version INTEGER NOT NULL DEFAULT -1,
    view         TEXT
) WITHOUT ROWID;
CREATE INDEX memory_unwritten ON memory_place (place) WHERE view_version <> version;

-- What was forgotten is known by a digest alone, under a key of this database.
CREATE TABLE gone (
    place  TEXT NOT NULL,
    digest BLOB NOT NULL,
    at     REAL NOT NULL,
    PRIMARY KEY (place, digest)
) WITHOUT ROWID;
CREATE TABLE gone_source (                      -- messages that something forgotten came from
    entry INTEGER PRIMARY KEY
);
CREATE TABLE gone_key (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    key BLOB NOT NULL
);

CREATE TABLE fact_vector (
    fact   INTEGER NOT NULL,
    model  TEXT NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (fact, model)
) WITHOUT ROWID;
