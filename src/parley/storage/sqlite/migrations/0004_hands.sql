-- What runs in the background for a session; its row stays for a while after its end. Whatever
-- had a row before this version ended with its gateway. The lane is that of the session.
DROP TABLE work;
CREATE TABLE work (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('process', 'task')),
    session    TEXT NOT NULL,
    generation INTEGER NOT NULL,
    source     TEXT NOT NULL,
    notify     INTEGER NOT NULL,
    body       TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'stopped', 'lost')),
    result     TEXT,
    at         REAL NOT NULL,
    ended_at   REAL,
    CHECK ((ended_at IS NULL) = (state = 'running'))
);
CREATE INDEX work_running ON work (session) WHERE state = 'running';
CREATE INDEX work_by_session ON work (session);
CREATE INDEX work_ended ON work (ended_at) WHERE state <> 'running';

-- Whether one exact call may be made, and what people allowed beyond that one call.
CREATE TABLE question (
    id         TEXT PRIMARY KEY,
    call       TEXT NOT NULL UNIQUE,             -- one call is asked about once
    lane       TEXT NOT NULL,
    session    TEXT NOT NULL,
    turn       INTEGER NOT NULL,
    person     TEXT NOT NULL,
    owner      INTEGER NOT NULL,                 -- only an owner may answer
    tool       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    what       TEXT NOT NULL,
    expires_at REAL NOT NULL,
    state      TEXT NOT NULL
        CHECK (state IN ('waiting', 'allowed', 'used', 'denied', 'expired', 'gone')),
    answerer   TEXT,
    at         REAL NOT NULL
);
CREATE INDEX question_waiting ON question (lane) WHERE state = 'waiting';
CREATE INDEX question_of_turn ON question (turn) WHERE state = 'waiting';
CREATE INDEX question_by_session ON question (session);
CREATE INDEX question_decided ON question (at) WHERE state <> 'waiting';

CREATE TABLE permit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used again: a late word takes back its own
    scope   TEXT NOT NULL CHECK (scope IN ('session', 'always')),
    session TEXT NOT NULL,                       -- empty: in all of this person's
    person  TEXT NOT NULL,
    tool    TEXT NOT NULL,
    digest  TEXT NOT NULL,
    what    TEXT NOT NULL,
    at      REAL NOT NULL,
    UNIQUE (person, tool, digest, scope, session)
);
CREATE INDEX permit_of_session ON permit (session) WHERE session <> '';

-- Who speaks in a turn, as `platform:user`.
ALTER TABLE turn ADD COLUMN person TEXT;
UPDATE turn SET person = json_extract(source, '$.platform') || ':' || coalesce(
    nullif(json_extract(source, '$.user_id'), ''), json_extract(source, '$.chat_id'), '');

-- Where each of them has spoken.
CREATE TABLE speaker (
    person TEXT NOT NULL,
    lane   TEXT NOT NULL,
    PRIMARY KEY (person, lane)
) WITHOUT ROWID;
INSERT INTO speaker SELECT DISTINCT person, lane FROM turn;

-- Whom a model call is counted for, and its money in millionths.
ALTER TABLE usage ADD COLUMN user TEXT;
ALTER TABLE usage ADD COLUMN charged TEXT;       -- the session that pays, where it is another
ALTER TABLE usage ADD COLUMN micros INTEGER NOT NULL DEFAULT 0;
UPDATE usage SET user = (SELECT person FROM turn WHERE id = usage.turn);
CREATE INDEX usage_by_user ON usage (user, at);
CREATE INDEX usage_charged ON usage (charged) WHERE charged IS NOT NULL;

-- What was spent of a limit: made when the limit is first asked for, kept up with each call.
CREATE TABLE spend (
    whose  TEXT NOT NULL CHECK (whose IN ('profile', 'user', 'session')),
    who    TEXT NOT NULL,
    since  REAL NOT NULL,
    until  REAL NOT NULL,
    tokens INTEGER NOT NULL,
    micros INTEGER NOT NULL,
    PRIMARY KEY (whose, who, since, until)
) WITHOUT ROWID;
CREATE INDEX spend_until ON spend (until);

-- What a running turn's model call may cost; only calls under way have a row.
CREATE TABLE reservation (
    turn         INTEGER PRIMARY KEY,
    owner        TEXT NOT NULL,
    user         TEXT NOT NULL,
    session      TEXT NOT NULL,                  -- that pays
    provider     TEXT NOT NULL,
    model        TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,
    micros       INTEGER NOT NULL
);

ALTER TABLE job ADD COLUMN every REAL;

-- Something small that is kept with a session, and what a person has set.
CREATE TABLE note (
    session TEXT NOT NULL,
    name    TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (session, name)
) WITHOUT ROWID;
CREATE TABLE person_setting (
    person TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (person, name)
) WITHOUT ROWID;

-- How far the entries are in the search index, which is made when it is first needed.
CREATE TABLE indexed (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
);
INSERT INTO indexed VALUES (1, 0);
