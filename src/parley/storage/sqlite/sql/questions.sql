-- name: question_add
-- Ask about a call, once.
INSERT INTO question (id, call, lane, session, turn, person, owner, tool, digest, what,
    once, expires_at, state, answerer, at)
VALUES (:id, :call, :lane, :session, :turn, :person, :owner, :tool, :digest, :what,
    :once, :expires_at, :state, :by, :at)
ON CONFLICT (call) DO NOTHING;

-- name: question_of_call
-- What was asked about a call.
SELECT * FROM question WHERE call = :call;

-- name: question_get
-- One question.
SELECT * FROM question WHERE id = :id;

-- name: questions_waiting
-- The questions of a lane that can still be answered, oldest first.
SELECT * FROM question WHERE lane = :lane AND state = 'waiting' AND expires_at > :now
ORDER BY at, rowid;

-- name: question_answer
-- A person decided, in time.
UPDATE question SET state = :state, answerer = :by
WHERE id = :id AND state = 'waiting' AND expires_at > :now
RETURNING session, person, tool, digest, what, once;

-- name: question_close
-- Nobody will decide it any more.
UPDATE question SET state = :state, answerer = :by WHERE id = :id AND state = 'waiting'
RETURNING session, person, tool, digest, what, once;

-- name: question_use
-- The call that was allowed is about to begin.
UPDATE question SET state = 'used' WHERE id = :id AND state = 'allowed';

-- name: questions_gone
-- Nobody needs the answers any more: the turn is over.
UPDATE question SET state = 'gone' WHERE turn = :turn AND state = 'waiting';

-- name: permit_add
-- A call needs no further word.
INSERT INTO permit (scope, session, person, tool, digest, what, at)
VALUES (:scope, :session, :person, :tool, :digest, :what, :at)
ON CONFLICT (person, tool, digest, scope, session) DO NOTHING;

-- name: permit_find
-- Whether a call needs no further word here.
SELECT 1 FROM permit WHERE person = :person AND tool = :tool AND digest = :digest
    AND ((scope = 'session' AND session = :session) OR scope = 'always') LIMIT 1;

-- name: permits
-- All that a person allowed, the newest first.
SELECT id, scope, session, person, tool, what, at FROM permit
WHERE person = :person ORDER BY id DESC;

-- name: permits_revoke
-- All that a person allowed, or one of it, is taken back.
DELETE FROM permit WHERE person = :person AND (:id IS NULL OR id = :id);

-- name: forget_questions
-- What was asked in a deleted session.
DELETE FROM question WHERE session = :session;

-- name: forget_permits
-- What was allowed for a deleted session.
DELETE FROM permit WHERE session = :session AND session <> '';

-- name: questions_prune
-- What was decided long ago.
DELETE FROM question WHERE state <> 'waiting' AND at < :before;
