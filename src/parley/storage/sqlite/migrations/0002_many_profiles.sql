-- What runs in the background for a session. Only what is under way has a row.
CREATE TABLE work (
    id      TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    owner   TEXT NOT NULL,
    at      REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX work_by_session ON work (session);

-- Jobs may be planned for lanes that nobody has spoken in yet: they are found by their own lane.
CREATE INDEX job_by_lane ON job (lane);

-- One row, written to find out whether the disk can be written to again.
CREATE TABLE probe (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    at  REAL NOT NULL
);

-- A conversation may be held by two accounts: replies keep their order in each of them.
ALTER TABLE outbox ADD COLUMN account TEXT NOT NULL DEFAULT '';
DROP INDEX outbox_open;
CREATE INDEX outbox_open ON outbox (lane, account, id) WHERE state IN ('waiting', 'sending');
