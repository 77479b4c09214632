-- name: session_add
-- A new conversation.
INSERT INTO session (id, lane, title, created_at, updated_at)
VALUES (:id, :lane, :title, :at, :at);

-- name: session_get
-- One session as a list shows it.
SELECT s.*, l.session IS NOT NULL AS current
FROM session s LEFT JOIN lane l ON l.key = s.lane AND l.session = s.id WHERE s.id = :id;

-- name: session_of_lane
-- The session a lane goes on with.
SELECT s.*, 1 AS current FROM lane l JOIN session s ON s.id = l.session WHERE l.key = :lane;

-- name: sessions_by_time
-- The newest sessions.
SELECT s.*, l.session IS NOT NULL AS current
FROM session s LEFT JOIN lane l ON l.key = s.lane AND l.session = s.id
WHERE s.updated_at < :before ORDER BY s.updated_at DESC LIMIT :limit;

-- name: sessions_of_lane
-- The newest sessions of one conversation.
SELECT s.*, l.session IS NOT NULL AS current
FROM session s LEFT JOIN lane l ON l.key = s.lane AND l.session = s.id
WHERE s.lane = :lane AND s.updated_at < :before ORDER BY s.updated_at DESC LIMIT :limit;

-- name: sessions_under
-- The newest sessions of lanes that begin so, a page at a time.
SELECT s.*, l.session IS NOT NULL AS current
FROM session s LEFT JOIN lane l ON l.key = s.lane AND l.session = s.id
WHERE s.lane >= :lanes AND s.lane < :beyond AND (s.updated_at, s.id) < (:at, :id)
ORDER BY s.updated_at DESC, s.id DESC LIMIT :limit;

-- name: sessions_by_prefix
-- Sessions whose id begins so, of one lane or of all.
SELECT s.*, l.session IS NOT NULL AS current
FROM session s LEFT JOIN lane l ON l.key = s.lane AND l.session = s.id
WHERE s.id >= :prefix AND s.id < :beyond AND (:lane IS NULL OR s.lane = :lane) ORDER BY s.id LIMIT 20;

-- name: session_begin
-- A turn begins in this session; it is in line to be tended, unless it is a delegated task's.
UPDATE session SET updated_at = :at, turns = turns + 1, tend_at = :tend_at WHERE id = :session;

-- name: session_touch
-- This session was used.
UPDATE session SET updated_at = :at WHERE id = :session;

-- name: session_count
-- A model call was made in this session.
UPDATE session SET input_tokens = input_tokens + :input, output_tokens = output_tokens + :output,
    cached_tokens = cached_tokens + :cached WHERE id = :session;

-- name: session_title
-- A person named the session.
UPDATE session SET title = :title, updated_at = :at WHERE id = :session;

-- name: session_model
-- A person chose who answers in this session.
UPDATE session SET provider = :provider, model = :model, updated_at = :at WHERE id = :session;

-- name: session_window
-- Later prompts begin further on; never further back. Sources of outside text add up, the newest first.
UPDATE session SET window_start = max(window_start, :keep_from), revision = revision + 1,
    outside = CASE WHEN :outside = '' OR instr(', ' || outside || ', ', ', ' || :outside || ', ')
        THEN outside ELSE substr(:outside || rtrim(', ' || outside, ', '), 1, 1000) END
WHERE id = :session;

-- name: session_revise
-- Something that was said no longer counts.
UPDATE session SET revision = revision + 1, updated_at = :at WHERE id = :session;

-- name: session_recall
-- What a turn needs to know of its session.
SELECT provider, model, revision, summary, outside FROM session WHERE id = :session;

-- name: entries_since
-- The newest entries of a transcript, without what was undone.
SELECT e.id, e.turn, e.body, e.at, coalesce(t.person, '') AS person
FROM entry e JOIN turn t ON t.id = e.turn
WHERE e.session = :session AND e.id > :since AND t.state <> 'undone' ORDER BY e.id;

-- name: session_running
-- Whether a turn of this session is under way, or work in the background.
SELECT 1 FROM turn WHERE session = :session AND state = 'running'
UNION ALL SELECT 1 FROM work WHERE session = :session AND state = 'running';

-- name: entry_add
-- One more line of a transcript.
INSERT INTO entry (session, turn, body, at) VALUES (:session, :turn, :body, :at);

-- name: entries
-- A transcript from where its window starts, without what was undone.
SELECT e.id, e.turn, e.body, e.at, coalesce(t.person, '') AS person
FROM entry e JOIN turn t ON t.id = e.turn
WHERE e.session = :session AND t.state <> 'undone'
    AND e.id >= (SELECT window_start FROM session WHERE id = :session)
ORDER BY e.id;

-- name: entries_all
-- A whole transcript, without what was undone.
SELECT e.id, e.turn, e.body, e.at, coalesce(t.person, '') AS person
FROM entry e JOIN turn t ON t.id = e.turn
WHERE e.session = :session AND t.state <> 'undone' ORDER BY e.id;

-- name: forget_inbox
-- The words of a deleted session's messages.
UPDATE inbox SET payload = '{}', request = NULL WHERE turn IN (SELECT id FROM turn WHERE session = :session);

-- name: forget_aside
-- The words of commands given in a deleted session, and of messages dropped in it.
UPDATE inbox SET payload = '{}', request = NULL, session = NULL WHERE session = :session;

-- name: forget_outbox
-- The words of a deleted session's replies.
DELETE FROM outbox WHERE session = :session;

-- name: forget_entries
-- A deleted session's transcript.
DELETE FROM entry WHERE session = :session;

-- name: forget_turns
-- A deleted session's turns.
DELETE FROM turn WHERE session = :session;

-- name: forget_session
-- The session itself.
DELETE FROM session WHERE id = :session;
