-- name: outbox_add
-- A reply waits for its surface.
INSERT INTO outbox (lane, platform, account, session, turn, dedupe, source, text, kind, answers,
    attachments, state, owner, attempts, next_at, at)
VALUES (:lane, :platform, :account, :session, :turn, :dedupe, :source, :text, :kind, :answers,
    :attachments, :state, :owner, :attempts, :at, :at)
ON CONFLICT (dedupe) DO NOTHING;

-- name: outbox_id_of
-- The reply that was stored under this name.
SELECT id FROM outbox WHERE dedupe = :dedupe;

-- name: outbox_open
-- Whether earlier replies of the lane are still on their way to this account.
SELECT 1 FROM outbox
WHERE lane = :lane AND account = :account AND state IN ('waiting', 'sending') LIMIT 1;

-- name: outbox_behind
-- Whether more replies of this one's lane are on their way to its account.
SELECT 1 FROM outbox o
JOIN outbox p ON p.lane = o.lane AND p.account = o.account AND p.state IN ('waiting', 'sending')
WHERE o.id = :id LIMIT 1;

-- name: outbox_due
-- The oldest open reply of each lane and account of a platform, if it may go now.
SELECT * FROM outbox o
WHERE platform = :platform AND state = 'waiting' AND next_at <= :now
    AND NOT EXISTS (SELECT 1 FROM outbox p WHERE p.lane = o.lane AND p.account = o.account
        AND p.id < o.id AND p.state IN ('waiting', 'sending'))
ORDER BY id LIMIT :limit;

-- name: outbox_lease
-- This owner sends it.
UPDATE outbox SET state = 'sending', owner = :owner, attempts = attempts + 1 WHERE id = :id
RETURNING *;

-- name: outbox_next_at
-- When the next reply of a platform may go; those behind an earlier one of their lane wait for it.
SELECT next_at FROM outbox o
WHERE platform = :platform AND state = 'waiting' AND next_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM outbox p WHERE p.lane = o.lane AND p.account = o.account
        AND p.id < o.id AND p.state IN ('waiting', 'sending'))
ORDER BY next_at LIMIT 1;

-- name: outbox_sent
-- The surface confirmed it.
UPDATE outbox SET state = 'sent', owner = NULL, platform_id = :platform_id WHERE id = :id;

-- name: outbox_retry
-- It did not go; next_at NULL parks it.
UPDATE outbox SET state = 'waiting', owner = NULL, next_at = :next_at, why = :why
WHERE id = :id AND state <> 'sent';

-- name: outbox_abandon
-- Nobody will try again by itself.
UPDATE outbox SET state = :state, owner = NULL, why = :why WHERE id = :id AND state <> 'sent';

-- name: outbox_unpark
-- The chat can be reached again.
UPDATE outbox SET next_at = :now
WHERE lane = :lane AND state IN ('waiting', 'sending') AND state = 'waiting' AND next_at IS NULL;

-- name: outbox_resume_repeatable
-- What a dead owner was sending goes again where the platform knows a repeat.
UPDATE outbox SET state = 'waiting', owner = NULL, next_at = :now
WHERE state = 'sending' AND owner <> :owner AND platform = :platform;

-- name: outbox_resume_unsure
-- Elsewhere it may have arrived: it is kept and shown.
UPDATE outbox SET state = 'unsure', owner = NULL,
    why = 'The gateway ended while this was being sent; it may have arrived.'
WHERE state = 'sending' AND owner <> :owner AND platform = :platform;

-- name: outbox_doubtful
-- The newest replies that nobody can be sure of.
SELECT * FROM outbox WHERE state IN ('unsure', 'dead') AND state = :state
ORDER BY id DESC LIMIT 20;
