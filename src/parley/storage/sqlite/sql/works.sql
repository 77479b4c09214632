-- name: work_begin
-- Something runs in the background for a session of this lane, once; what was lost may begin anew.
INSERT INTO work (id, kind, session, generation, source, notify, body, state, at)
SELECT :id, :kind, id, :generation, :source, :notify, :body, 'running', :at
FROM session WHERE id = :session AND lane = :lane
ON CONFLICT (id) DO UPDATE SET state = 'running', result = NULL, ended_at = NULL
WHERE state = 'lost';

-- name: work_end
-- It is over, once.
UPDATE work SET state = :state, result = :result, ended_at = :at
WHERE id = :id AND state = 'running' RETURNING session;

-- name: work_get
-- One piece of work.
SELECT w.*, s.lane FROM work w JOIN session s ON s.id = w.session WHERE w.id = :id;

-- name: works
-- All work that runs, oldest first.
SELECT w.*, s.lane FROM work w JOIN session s ON s.id = w.session
WHERE w.state = 'running' ORDER BY w.at, w.id;

-- name: works_ever
-- All work there is a row of, oldest first.
SELECT w.*, s.lane FROM work w JOIN session s ON s.id = w.session ORDER BY w.at, w.id;

-- name: works_of_session
-- What runs for a session, oldest first.
SELECT w.*, s.lane FROM work w JOIN session s ON s.id = w.session
WHERE w.session = :session AND w.state = 'running' ORDER BY w.at, w.id;

-- name: works_ever_of_session
-- What ran for a session, oldest first.
SELECT w.*, s.lane FROM work w JOIN session s ON s.id = w.session
WHERE w.session = :session ORDER BY w.at, w.id;

-- name: works_of_lane
-- What runs for the sessions of a lane, oldest first.
SELECT w.*, s.lane FROM session s CROSS JOIN work w ON w.session = s.id
WHERE s.lane = :lane AND w.state = 'running' ORDER BY w.at, w.id;

-- name: works_ever_of_lane
-- What ran for the sessions of a lane, oldest first.
SELECT w.*, s.lane FROM session s CROSS JOIN work w ON w.session = s.id
WHERE s.lane = :lane ORDER BY w.at, w.id;

-- name: lane_owes
-- What may still be said in a lane by itself: ends of work, answers to reports, replies to send.
SELECT (SELECT count(*) FROM session s CROSS JOIN work w ON w.session = s.id
        WHERE s.lane = :lane AND w.state = 'running' AND w.notify)
    + (SELECT count(*) FROM inbox
        WHERE lane = :lane AND state = 'queued' AND kind = 'message' AND lasting IS NULL)
    + (SELECT count(*) FROM turn t JOIN inbox i ON i.turn = t.id
        WHERE t.lane = :lane AND t.state = 'running' AND i.lasting IS NULL)
    + (SELECT count(*) FROM outbox WHERE lane = :lane AND state IN ('waiting', 'sending'))
    AS owed;

-- name: works_merge
-- Two lanes become one: what belongs to the last generation of one belongs to that of both.
UPDATE work SET generation = :generation
WHERE state = 'running' AND generation = :before
    AND session IN (SELECT id FROM session WHERE lane = :lane);

-- name: works_prune
-- What ended long ago.
DELETE FROM work WHERE state <> 'running' AND ended_at < :before;

-- name: forget_works
-- What ran for a deleted session.
DELETE FROM work WHERE session = :session;
