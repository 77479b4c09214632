-- name: search_make
-- The words of what was said; made when they are first needed, for not every SQLite can.
CREATE VIRTUAL TABLE IF NOT EXISTS said USING fts5(text, tokenize = "unicode61 remove_diacritics 2");

-- name: search_is_made
-- Whether there is an index of words.
SELECT 1 FROM sqlite_schema WHERE name = 'said';

-- name: search_last
-- How far the entries are in the index.
SELECT last FROM indexed;

-- name: search_reach
-- The last of the next entries that are not in the index.
SELECT count(*) AS entries, max(id) AS last FROM (
    SELECT id FROM entry WHERE id > :last ORDER BY id LIMIT :limit);

-- name: search_add
-- What people and the agent said among these entries; of a long text the beginning.
INSERT INTO said (rowid, text)
SELECT id, substr(json_extract(body, '$.text'), 1, :most) FROM entry
WHERE id > :last AND id <= :reach AND json_extract(body, '$.role') IN ('user', 'assistant')
    AND json_extract(body, '$.text') <> '';

-- name: search_move
-- The entries up to this one are in the index.
UPDATE indexed SET last = :reach;

-- name: search_best
-- What was said in these words, where this person spoke, in this lane, or anywhere; best first.
SELECT e.id FROM said JOIN entry e ON e.id = said.rowid JOIN turn t ON t.id = e.turn
WHERE said MATCH :words AND t.state <> 'undone'
    AND ((:person IS NULL AND :lane IS NULL) OR t.person = :person OR t.lane = :lane)
ORDER BY said.rank, e.id DESC LIMIT :limit;

-- name: search_excerpt
-- Where one of them was said, and the words around those.
SELECT e.id, e.session, s.title, t.lane, e.body, e.at,
    snippet(said, 0, '', '', '…', 40) AS excerpt
FROM said JOIN entry e ON e.id = said.rowid JOIN turn t ON t.id = e.turn
    JOIN session s ON s.id = e.session
WHERE said MATCH :words AND said.rowid = :id;

-- name: search_plainly
-- The same without an index: the newest that hold a word are looked through.
SELECT e.id, e.session, s.title, t.lane, e.body, e.at
FROM entry e JOIN turn t ON t.id = e.turn JOIN session s ON s.id = e.session
WHERE t.state <> 'undone' AND json_extract(e.body, '$.role') IN ('user', 'assistant')
    AND ((:person IS NULL AND :lane IS NULL) OR t.person = :person OR t.lane = :lane)
    AND json_extract(e.body, '$.text') LIKE :like ESCAPE '\'
ORDER BY e.id DESC;

-- name: search_holds
-- Whether anything of a session was taken in.
SELECT 1 FROM entry WHERE session = :session AND id <= (SELECT last FROM indexed) LIMIT 1;

-- name: search_forget
-- The words of a session that is about to be deleted.
DELETE FROM said WHERE rowid IN (SELECT id FROM entry WHERE session = :session);

-- name: search_retreat
-- The numbers of deleted entries at the end are given out again.
UPDATE indexed SET last = min(last, (SELECT coalesce(max(id), 0) FROM entry));

-- name: search_merge
-- Deleted words leave the index for good as its pieces are merged, so many pages at a time.
INSERT INTO said (said, rank) VALUES ('merge', :pages);

-- name: conversations_of_person
-- Where a person has spoken, the newest first.
SELECT t.lane, l.session, s.title, t.source, t.started_at AS at
FROM speaker p JOIN lane l ON l.key = p.lane JOIN session s ON s.id = l.session
    JOIN turn t ON t.id = (
        SELECT max((SELECT id FROM turn WHERE session = x.id AND person = :person
            ORDER BY id DESC LIMIT 1)) FROM session x WHERE x.lane = l.key)
WHERE p.person = :person AND l.platform NOT IN ('task', 'api')
ORDER BY t.id DESC LIMIT :limit;

-- name: conversations
-- Where anyone has spoken, the conversation that was used last first.
SELECT t.lane, l.session, s.title, t.source, t.started_at AS at
FROM session s CROSS JOIN lane l ON l.key = s.lane AND l.session = s.id
    JOIN turn t ON t.id = (
        SELECT max((SELECT max(id) FROM turn WHERE session = x.id)) FROM session x
        WHERE x.lane = l.key)
WHERE l.platform NOT IN ('task', 'api') ORDER BY s.updated_at DESC LIMIT :limit;

-- name: conversation_at
-- The newest turn of a lane.
SELECT t.lane, l.session, s.title, t.source, t.started_at AS at
FROM lane l JOIN session s ON s.id = l.session
    JOIN turn t ON t.id = (
        SELECT max((SELECT max(id) FROM turn WHERE session = x.id)) FROM session x
        WHERE x.lane = l.key)
WHERE l.key = :lane;
