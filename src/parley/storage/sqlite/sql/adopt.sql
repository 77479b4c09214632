-- name: lanes_elsewhere
-- Lanes whose names begin as ours do, in another namespace.
SELECT key, session, epoch, generation FROM lane
WHERE (key > 'agent:' AND key < :inside) OR (key >= :beyond AND key < 'agent;');

-- name: jobs_elsewhere
-- The lanes in another namespace that jobs are planned for.
SELECT lane FROM job
WHERE (lane > 'agent:' AND lane < :inside) OR (lane >= :beyond AND lane < 'agent;');

-- name: requests_elsewhere
-- The lanes in another namespace that requests under way are for.
SELECT lane FROM request
WHERE ended_at IS NULL
    AND ((lane > 'agent:' AND lane < :inside) OR (lane >= :beyond AND lane < 'agent;'));

-- name: lane_rename
-- The same lane under another name.
UPDATE lane SET key = :new WHERE key = :lane;

-- name: lane_merge
-- One lane in place of two: later than both, so that nobody who held one of them is heard.
UPDATE lane SET session = :session, epoch = max(epoch, :epoch),
    generation = max(generation, :generation) WHERE key = :lane;

-- name: lane_remove
-- A lane that became part of another.
DELETE FROM lane WHERE key = :lane;

-- name: adopt_sessions
-- Sessions follow their lane.
UPDATE session SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);

-- name: adopt_turns
-- Turns follow their lane.
UPDATE turn SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);

-- name: adopt_inbox
-- Messages follow their lane.
UPDATE inbox SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);

-- name: adopt_outbox
-- Replies follow their lane.
UPDATE outbox SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);

-- name: adopt_jobs
-- Jobs follow their lane.
UPDATE job SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);

-- name: adopt_requests
-- Requests follow their lane.
UPDATE request SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);

-- name: adopt_questions
-- Questions follow their lane.
UPDATE question SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);

-- name: adopt_speakers
-- Whoever spoke in a lane spoke in it.
UPDATE OR REPLACE speaker SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);

-- name: adopt_chats
-- Chats follow their lane.
UPDATE chat SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);
