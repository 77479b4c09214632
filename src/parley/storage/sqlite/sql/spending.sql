-- name: usage_add
-- What one model call cost.
INSERT INTO usage (session, turn, provider, model, input_tokens, output_tokens, cached_tokens, at,
    user, charged, micros)
VALUES (:session, :turn, :provider, :model, :input, :output, :cached, :at, :user, :charged,
    :micros);

-- name: spend_is_counted
-- Whether anyone has asked for a limit of this time.
SELECT 1 FROM spend WHERE until > :at LIMIT 1;

-- name: spend_count
-- A call counts for every limit it falls in.
UPDATE spend SET tokens = tokens + :input + :output, micros = micros + :micros
WHERE ((whose = 'profile' AND who = '') OR (whose = 'user' AND who = :user)
        OR (whose = 'session' AND who = coalesce(:charged, :session)))
    AND since <= :at AND until > :at;

-- name: spend_get
-- What was spent of a limit.
SELECT tokens, micros FROM spend
WHERE whose = :whose AND who = :who AND since = :since AND until = :until;

-- name: spend_put
-- A limit is looked at for the first time.
INSERT INTO spend (whose, who, since, until, tokens, micros)
VALUES (:whose, :who, :since, :until, :tokens, :micros);

-- name: spend_prune
-- Limits of times long past.
DELETE FROM spend WHERE until < :before;

-- name: usage_of_profile
-- All that was spent in a time.
SELECT coalesce(sum(input_tokens + output_tokens), 0) AS tokens, coalesce(sum(micros), 0) AS micros
FROM usage WHERE at >= :since AND at < :until;

-- name: usage_of_user
-- What was spent for a person in a time.
SELECT coalesce(sum(input_tokens + output_tokens), 0) AS tokens, coalesce(sum(micros), 0) AS micros
FROM usage WHERE user = :who AND at >= :since AND at < :until;

-- name: usage_of_session
-- What a session paid for in a time: its own calls, and those of tasks it delegated.
SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(micros), 0) AS micros FROM (
    SELECT input_tokens + output_tokens AS tokens, micros FROM usage
    WHERE session = :who AND charged IS NULL AND at >= :since AND at < :until
    UNION ALL SELECT input_tokens + output_tokens, micros FROM usage
    WHERE charged = :who AND at >= :since AND at < :until);

-- name: reservations_held
-- What calls under way may cost: all of them, those for a person, those a session pays for.
SELECT coalesce(sum(tokens), 0) AS profile_tokens, coalesce(sum(micros), 0) AS profile_micros,
    coalesce(sum(tokens) FILTER (WHERE user = :user), 0) AS user_tokens,
    coalesce(sum(micros) FILTER (WHERE user = :user), 0) AS user_micros,
    coalesce(sum(tokens) FILTER (WHERE session = :session), 0) AS session_tokens,
    coalesce(sum(micros) FILTER (WHERE session = :session), 0) AS session_micros
FROM reservation WHERE turn <> :turn;

-- name: reservation_put
-- A call is about to be made; a turn makes one at a time.
INSERT INTO reservation (turn, owner, user, session, provider, model, input_tokens, tokens, micros)
VALUES (:turn, :owner, :user, :session, :provider, :model, :input, :tokens, :micros)
ON CONFLICT (turn) DO UPDATE SET owner = excluded.owner, user = excluded.user,
    session = excluded.session, provider = excluded.provider, model = excluded.model,
    input_tokens = excluded.input_tokens, tokens = excluded.tokens, micros = excluded.micros;

-- name: reservation_drop
-- What a turn's call did cost is known.
DELETE FROM reservation WHERE turn = :turn;

-- name: reservation_take
-- What a turn's call did cost will never be known.
DELETE FROM reservation WHERE turn = :turn RETURNING *;

-- name: reservations_of_others
-- The calls of dead owners.
SELECT turn FROM reservation WHERE owner <> :owner;

-- name: turn_is_held
-- Whether this owner runs this turn.
SELECT 1 FROM turn t JOIN lane l ON l.key = t.lane
WHERE t.id = :turn AND t.state = 'running' AND l.state = 'leased' AND l.owner = :owner;

-- name: forget_usage
-- A deleted session's place in the ledger; what it cost stays counted.
UPDATE usage SET session = '' WHERE session = :session;

-- name: forget_charged
-- A deleted session's place in the ledger, where others worked for it.
UPDATE usage SET charged = '' WHERE charged = :session;

-- name: forget_spend
-- What a deleted session spent.
DELETE FROM spend WHERE whose = 'session' AND who = :session;
