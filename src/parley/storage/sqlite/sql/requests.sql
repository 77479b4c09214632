-- name: request_add
-- A program's request is kept.
INSERT INTO request (id, kind, owner, lane, dedupe, state, body, result, key, fingerprint,
    expires_at, created_at, ended_at)
VALUES (:id, :kind, :owner, :lane, :dedupe, :state, :body, :result, :key, :fingerprint,
    :expires_at, :created_at, :ended_at);

-- name: request_get
-- A request, unless it is over and its time has passed.
SELECT * FROM request WHERE id = :id
    AND (ended_at IS NULL OR expires_at IS NULL OR expires_at > :now);

-- name: request_same
-- The requests that stand in the way of a new one: of its key, or its id.
SELECT * FROM request WHERE key = :key OR id = :id
ORDER BY coalesce(key = :key, 0) DESC;

-- name: request_mark
-- What a request that is under way is doing.
UPDATE request SET state = :state WHERE id = :id AND ended_at IS NULL;

-- name: request_end
-- A request is over, once.
UPDATE request SET state = :state, result = :result, ended_at = :at
WHERE id = :id AND ended_at IS NULL;

-- name: request_is_open
-- Whether a request is under way.
SELECT 1 FROM request WHERE id = :id AND ended_at IS NULL;

-- name: request_remove
-- The request itself.
DELETE FROM request WHERE id = :id;

-- name: request_remove_events
-- The whole log of a request.
DELETE FROM request_event WHERE request = :id;

-- name: request_last_event
-- The number of the newest event of a request.
SELECT max(number) FROM request_event WHERE request = :id;

-- name: request_add_event
-- One more line of a request's log.
INSERT INTO request_event (request, number, kind, data, at)
VALUES (:id, :number, :kind, :data, :at);

-- name: request_events
-- The log of a request after an event.
SELECT number, kind, data, at FROM request_event
WHERE request = :id AND number > :after ORDER BY number LIMIT :limit;

-- name: requests_open
-- Every request that is under way, oldest first.
SELECT * FROM request WHERE ended_at IS NULL ORDER BY created_at, rowid;

-- name: request_open_in
-- A request that is under way in a lane.
SELECT 1 FROM request WHERE lane = :lane AND ended_at IS NULL LIMIT 1;

-- name: requests_expired
-- Requests that are over and whose time has passed, oldest first.
SELECT id FROM request
WHERE ended_at IS NOT NULL AND expires_at IS NOT NULL AND expires_at <= :now
ORDER BY expires_at LIMIT :limit;

-- name: inbox_by_name
-- A message, and the turn that took it.
SELECT id, lane, state, turn FROM inbox WHERE dedupe = :dedupe AND kind = 'message';

-- name: inbox_withdraw
-- Nobody waits any more for the answer to a message that no turn took.
UPDATE inbox SET state = 'dropped', request = NULL,
    session = (SELECT session FROM lane WHERE key = inbox.lane)
WHERE id = :id AND state = 'queued' AND kind = 'message';

-- name: inbox_unwaited
-- The messages under way that only their own connection waited for, or that were to be stopped.
SELECT id, lane, state, turn FROM inbox
WHERE lasting = 0 AND state IN ('queued', 'taken')
UNION
SELECT id, lane, state, turn FROM inbox
WHERE state IN ('queued', 'taken') AND kind = 'message' AND dedupe IN (
    SELECT dedupe FROM request WHERE ended_at IS NULL AND state = 'stopping')
ORDER BY id;

-- name: turn_get
-- One turn.
SELECT id, lane, session, state FROM turn WHERE id = :turn;

-- name: entries_backwards
-- A session's entries, the newest first.
SELECT turn, body FROM entry WHERE session = :session ORDER BY id DESC;

-- name: usage_backwards
-- What the calls of a session's turns cost, the newest first; housekeeping is nobody's call.
SELECT turn, provider, model, input_tokens, output_tokens, cached_tokens, micros FROM usage
WHERE session = :session AND user IS NOT NULL ORDER BY id DESC;

-- name: session_is_empty
-- Whether nothing was said in a session that still counts.
SELECT NOT EXISTS (SELECT 1 FROM entry e JOIN turn t ON t.id = e.turn
    WHERE e.session = :session AND t.state <> 'undone');

-- name: entries_newest_first
-- What prompts of a session begin with, the newest first.
SELECT e.body FROM entry e JOIN turn t ON t.id = e.turn
WHERE e.session = :session AND t.state <> 'undone'
    AND e.id >= (SELECT window_start FROM session WHERE id = :session)
ORDER BY e.id DESC;

-- name: session_is_cut
-- Whether prompts of a session begin in its midst.
SELECT 1 FROM session WHERE id = :session AND window_start > 0;

-- name: told_before_turn
-- How much of what comes before a turn was told by a program: no message of the inbox began it.
SELECT count(*) FROM turn t JOIN entry e ON e.session = t.session AND e.turn = t.id
WHERE t.id = (SELECT max(id) FROM turn
    WHERE session = :session AND id < :turn AND state <> 'undone')
    AND t.attempt > 0 AND NOT EXISTS (SELECT 1 FROM inbox WHERE turn = t.id);

-- name: forget_request_events
-- The logs of a deleted session's requests.
DELETE FROM request_event WHERE request IN (
    SELECT id FROM request WHERE dedupe IN (
        SELECT dedupe FROM inbox WHERE turn IN (SELECT id FROM turn WHERE session = :session)
        UNION ALL SELECT dedupe FROM inbox WHERE session = :session));

-- name: forget_requests
-- The requests of a deleted session, with what they asked and what was answered.
DELETE FROM request WHERE dedupe IN (
    SELECT dedupe FROM inbox WHERE turn IN (SELECT id FROM turn WHERE session = :session)
    UNION ALL SELECT dedupe FROM inbox WHERE session = :session);
