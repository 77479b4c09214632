-- name: quiet_outbox
-- A reply on its way goes by the original; its words are in the transcript.
DELETE FROM outbox WHERE state IN ('waiting', 'sending');

-- name: quiet_inbox
-- The original answers it.
UPDATE inbox SET state = 'dropped' WHERE state IN ('queued', 'taken');

-- name: quiet_turns
-- The original goes on with it.
UPDATE turn SET state = 'stopped', ended_at = :at WHERE state = 'running';

-- name: quiet_lanes
-- Every lane is quiet.
UPDATE lane SET state = 'idle', owner = NULL WHERE state <> 'idle';

-- name: quiet_works
-- What runs in the background reports to the original.
DELETE FROM work;

-- name: quiet_jobs
-- The original does what is planned.
DELETE FROM job;

-- name: quiet_questions
-- Whoever is asked answers the original.
UPDATE question SET state = 'gone' WHERE state = 'waiting';

-- name: quiet_reservations
-- The original pays.
DELETE FROM reservation;

-- name: quiet_given
-- The histories that programs gave with what the original answers.
UPDATE inbox SET request = NULL WHERE request IS NOT NULL;

-- name: quiet_requests
-- Whoever waits for it waits at the original.
UPDATE request SET state = 'stopped', ended_at = :at WHERE ended_at IS NULL;

-- name: quiet_chats
-- The original makes a place for it.
DELETE FROM chat WHERE lane IS NULL;

-- name: quiet_marks
-- Where the original is in a platform's stream of events.
DELETE FROM mark;
