-- name: lane_get
-- A lane as it is now.
SELECT key, platform, session, state, owner, epoch, generation FROM lane WHERE key = :lane;

-- name: lane_add
-- A conversation's first message makes its lane.
INSERT INTO lane (key, platform, session, state) VALUES (:lane, :platform, :session, 'idle');

-- name: lane_ready
-- An idle lane that has something to do goes to the end of the line.
UPDATE lane SET state = 'ready', owner = NULL,
    ready_seq = (SELECT coalesce(max(ready_seq), 0) + 1 FROM lane WHERE state = 'ready')
WHERE key = :lane AND state = 'idle';

-- name: lane_idle
-- A lane whose turn is over waits for the next message.
UPDATE lane SET state = 'idle', owner = NULL WHERE key = :lane;

-- name: lanes_ready
-- The lanes that wait longest, of the platforms this owner serves.
SELECT key, session, epoch, generation FROM lane
WHERE state = 'ready' AND platform IN (SELECT value FROM json_each(:platforms))
ORDER BY ready_seq LIMIT :limit;

-- name: lane_lease
-- One owner takes the lane; the epoch fences everyone before.
UPDATE lane SET state = 'leased', owner = :owner, epoch = epoch + 1 WHERE key = :lane;

-- name: lane_held
-- Whether a claim still holds.
SELECT 1 FROM lane WHERE key = :lane AND state = 'leased' AND owner = :owner
    AND epoch = :epoch AND generation = :generation;

-- name: lane_let_go
-- A lane whose turn is over, when more waits in it.
UPDATE lane SET state = 'idle', owner = NULL WHERE key = :lane AND state = 'leased';

-- name: lanes_recover
-- What dead owners held is ready again, ahead of the line.
UPDATE lane SET state = 'ready', owner = NULL,
    ready_seq = (SELECT coalesce(min(ready_seq), 0) - 1 FROM lane WHERE state = 'ready')
WHERE state = 'leased' AND owner <> :owner;

-- name: lane_raise_generation
-- Whatever the running turn still says is stale from here on.
UPDATE lane SET generation = generation + 1 WHERE key = :lane;

-- name: lane_is_over
-- Whether a lane is quiet and its session was last used too long ago for this new message.
SELECT 1 FROM lane l JOIN session s ON s.id = l.session
WHERE l.key = :lane AND l.state = 'idle' AND s.turns > 0 AND s.updated_at < :before
    AND NOT EXISTS (SELECT 1 FROM inbox WHERE lane = :lane AND state = 'queued')
    AND NOT EXISTS (SELECT 1 FROM work WHERE session = l.session AND state = 'running')
    AND NOT EXISTS (SELECT 1 FROM inbox WHERE dedupe = :dedupe);

-- name: lane_use_session
-- The lane goes on with another session.
UPDATE lane SET session = :session WHERE key = :lane;

-- name: inbox_add
-- Accept a message, once.
INSERT INTO inbox (lane, dedupe, kind, payload, request, lasting, state, not_before, at)
VALUES (:lane, :dedupe, :kind, :payload, :request, :lasting, 'queued', :not_before, :at)
ON CONFLICT (dedupe) DO NOTHING;

-- name: inbox_id_of
-- The message that was accepted under this name.
SELECT id FROM inbox WHERE dedupe = :dedupe;

-- name: inbox_next
-- The oldest message of a lane that may start now.
SELECT id, payload, request FROM inbox
WHERE lane = :lane AND state = 'queued' AND kind = 'message'
    AND (not_before IS NULL OR not_before <= :now)
ORDER BY id LIMIT 1;

-- name: inbox_waiting
-- All messages of a lane that may start now.
SELECT id, payload, request FROM inbox
WHERE lane = :lane AND state = 'queued' AND kind = 'message'
    AND (not_before IS NULL OR not_before <= :now)
ORDER BY id;

-- name: inbox_take
-- A message now belongs to a turn.
UPDATE inbox SET state = 'taken', turn = :turn WHERE id = :id;

-- name: inbox_of_turn
-- The messages a turn answers.
SELECT id, payload, request FROM inbox WHERE turn = :turn ORDER BY id;

-- name: inbox_finish_turn
-- The messages of a turn are answered; the history a program gave along is needed no more.
UPDATE inbox SET state = 'done', request = NULL WHERE turn = :turn AND state = 'taken';

-- name: inbox_drop
-- A person asked for the waiting messages to be dropped. What ended in the background is told.
UPDATE inbox SET state = 'dropped', request = NULL,
    session = (SELECT session FROM lane WHERE key = :lane)
WHERE lane = :lane AND state = 'queued' AND kind = 'message'
    AND json_extract(payload, '$.report') IS NULL;

-- name: inbox_tell
-- A report of background work came too late: its notice is shown instead.
UPDATE inbox SET state = 'done', payload = '{}' WHERE id = :id RETURNING dedupe;

-- name: inbox_commands
-- Commands that were accepted and not yet answered.
SELECT id, lane, payload, request FROM inbox WHERE state = 'queued' AND kind = 'command' ORDER BY id;

-- name: inbox_finish_command
-- A command is answered, once.
UPDATE inbox SET state = 'done' WHERE id = :id AND state = 'queued' AND kind = 'command';

-- name: inbox_file
-- A command belongs to the session it left its lane with.
UPDATE inbox SET session = :session WHERE id = :id;

-- name: inbox_lanes_due
-- Lanes with a planned message whose time has come.
SELECT DISTINCT lane FROM inbox
WHERE state = 'queued' AND not_before IS NOT NULL AND not_before <= :now;

-- name: inbox_next_planned
-- When the next planned message is due.
SELECT min(not_before) FROM inbox
WHERE state = 'queued' AND not_before IS NOT NULL AND not_before > :now;

-- name: turn_add
-- A turn begins.
INSERT INTO turn (lane, session, generation, attempt, state, source, person, started_at)
VALUES (:lane, :session, :generation, 1, 'running', :source, :person, :at);

-- name: speaker_add
-- Someone speaks in a lane, perhaps for the first time.
INSERT INTO speaker (person, lane) VALUES (:person, :lane) ON CONFLICT DO NOTHING;

-- name: turn_add_posted
-- Something was said that no turn answered with; no attempt was made at it.
INSERT INTO turn (lane, session, generation, attempt, state, source, person, started_at, ended_at)
VALUES (:lane, :session, :generation, 0, 'done', :source, :person, :at, :at);

-- name: turn_running
-- The turn a lane was in, if it did not end.
SELECT id, session, generation, attempt, source FROM turn
WHERE lane = :lane AND state = 'running' ORDER BY id LIMIT 1;

-- name: turn_resume
-- The same turn, taken up once more.
UPDATE turn SET attempt = attempt + 1 WHERE id = :turn;

-- name: turn_end
-- A turn is over.
UPDATE turn SET state = :state, ended_at = :at WHERE id = :turn AND state = 'running';

-- name: turn_last
-- The newest turn of a session that was run and not undone.
SELECT id FROM turn
WHERE session = :session AND state IN ('done', 'failed', 'stopped') AND attempt > 0
ORDER BY id DESC LIMIT 1;

-- name: turns_undone
-- How often something was taken back in a session.
SELECT count(*) AS undone FROM turn WHERE session = :session AND state = 'undone';

-- name: turn_undo
-- The turn no longer counts; its entries stay.
UPDATE turn SET state = 'undone' WHERE id = :turn;

-- name: counts
-- What is under way.
SELECT (SELECT count(*) FROM inbox WHERE state = 'queued' AND kind = 'message') AS queued,
       (SELECT count(*) FROM lane WHERE state = 'leased') AS running,
       (SELECT count(*) FROM outbox WHERE state IN ('waiting', 'sending')) AS undelivered;
