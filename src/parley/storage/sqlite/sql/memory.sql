-- name: sessions_untended
-- Sessions in line, longest waiting first, each with its newest turn and where it is remembered.
-- Nothing is put off `beyond` that moment: it was put in line before the clock was set back.
SELECT s.*, t.source, t.state = 'running' AS in_turn, coalesce(t.person, '') AS person,
    n.value AS place,
    coalesce((SELECT max(id) FROM entry WHERE session = s.id), 0) AS last
FROM session s CROSS JOIN turn t ON t.id = (SELECT max(id) FROM turn WHERE session = s.id)
    LEFT JOIN note n ON n.session = s.id AND n.name = 'memory'
WHERE s.tend_at IS NOT NULL AND (s.tend_at <= :now OR s.tend_at > :beyond)
    AND s.tend_at >= :at AND (s.tend_at > :at OR s.id > :id)
    AND s.id NOT IN (SELECT value FROM json_each(:without))
ORDER BY s.tend_at, s.id LIMIT :limit;

-- name: session_tended
-- One session, the same way.
SELECT s.*, t.source, t.state = 'running' AS in_turn, coalesce(t.person, '') AS person,
    n.value AS place,
    coalesce((SELECT max(id) FROM entry WHERE session = s.id), 0) AS last
FROM session s CROSS JOIN turn t ON t.id = (SELECT max(id) FROM turn WHERE session = s.id)
    LEFT JOIN note n ON n.session = s.id AND n.name = 'memory'
WHERE s.id = :session;

-- name: entries_gone
-- What was said that something forgotten came from, in a part of a session.
SELECT json_extract(e.body, '$.text') AS text FROM gone_source g CROSS JOIN entry e ON e.id = g.entry
WHERE e.session = :session AND e.id BETWEEN :first AND :last;

-- name: session_put_off
-- Out of line, or further back in it, when no turn began since; not out of it while one runs.
UPDATE session SET tend_at = :until WHERE id = :session AND tend_at IS :seen
    AND (:until IS NOT NULL
        OR NOT EXISTS (SELECT 1 FROM turn WHERE lane = session.lane AND state = 'running'));

-- name: lines_lengths
-- What there is behind an entry, in the order of a prompt: how much, but not what.
SELECT e.id, e.turn, length(e.body) AS length FROM entry e JOIN turn t ON t.id = e.turn
WHERE e.session = :session AND e.id > :after AND (:upto IS NULL OR e.id <= :upto)
    AND t.state NOT IN ('undone', 'running')
ORDER BY e.turn, e.id;

-- name: lines
-- Entries and who spoke in their turns, and whether something forgotten came from them.
SELECT e.id, e.turn, e.body, e.at, coalesce(t.person, '') AS person,
    e.id IN (SELECT entry FROM gone_source) AS is_gone
FROM entry e JOIN turn t ON t.id = e.turn
WHERE e.session = :session AND e.id > :after AND e.id <= :upto
    AND t.state NOT IN ('undone', 'running')
ORDER BY e.turn, e.id;

-- name: session_as_seen
-- A session that is as it was seen, where no turn runs in its lane.
SELECT s.* FROM session s LEFT JOIN lane l ON l.key = s.lane
WHERE s.id = :session AND s.revision = :revision AND s.learned = :learned AND s.folded = :folded
    AND coalesce(l.state, 'idle') <> 'leased'
    AND NOT EXISTS (SELECT 1 FROM turn WHERE lane = s.lane AND state = 'running');

-- name: session_learn
-- Facts are taken up to here; never less far, and not further than there is anything.
UPDATE session SET learned = max(learned,
    min(:learned, coalesce((SELECT max(id) FROM entry WHERE session = :session), 0)))
WHERE id = :session;

-- name: session_learn_from
-- What was said before this turn is not learned from, but what a program tells with its first.
UPDATE session SET learned = max(learned,
    coalesce((SELECT max(id) FROM entry WHERE session = :session AND turn < :turn), 0))
WHERE id = :session AND (:noted OR turns > 1);

-- name: session_fold
-- A summary stands for what was said before this entry.
UPDATE session SET summary = :summary, folded = :keep_from,
    window_start = max(window_start, :keep_from), revision = revision + 1,
    outside = CASE WHEN :outside = '' OR instr(', ' || outside || ', ', ', ' || :outside || ', ')
        THEN outside ELSE substr(:outside || rtrim(', ' || outside, ', '), 1, 1000) END
WHERE id = :session;

-- name: session_unfold
-- What was folded last is in the prompt again.
UPDATE session SET summary = :summary, folded = :folded, window_start = :window,
    revision = revision + 1
WHERE id = :session;

-- name: session_sum_up
-- Other words for what was folded.
UPDATE session SET summary = :summary, revision = revision + 1 WHERE id = :session;

-- name: session_revise_quietly
-- Something that was said reads otherwise now.
UPDATE session SET revision = revision + 1 WHERE id = :session;

-- name: session_summary
-- A session and what stands for its beginning.
SELECT id, window_start, folded, summary FROM session WHERE id = :session;

-- name: turn_newest
-- The newest turn of a session.
SELECT max(id) AS id FROM turn WHERE session = :session;

-- name: entries_behind
-- Which of these entries are of a session, behind one of them, and of turns that count; without
-- those that something forgotten came from.
SELECT e.id, e.at, coalesce(t.person, '') AS person
FROM json_each(:entries) CROSS JOIN entry e ON e.id = json_each.value JOIN turn t ON t.id = e.turn
WHERE e.session = :session AND e.id > :after AND t.state <> 'undone'
    AND e.id NOT IN (SELECT entry FROM gone_source) ORDER BY e.id;

-- name: entries_of_late
-- A session's entries, the newest first, and whether they are a person's words.
SELECT e.id, e.turn, e.at, coalesce(t.person, '') AS person,
    json_extract(e.body, '$.role') = 'user'
        AND coalesce(json_extract(e.body, '$.note'), '') <> 'internal' AS is_said
FROM entry e JOIN turn t ON t.id = e.turn WHERE e.session = :session ORDER BY e.id DESC;

-- name: entries_there
-- Which of these entries are there.
SELECT e.id, e.at, coalesce(t.person, '') AS person
FROM json_each(:entries) CROSS JOIN entry e ON e.id = json_each.value JOIN turn t ON t.id = e.turn
ORDER BY e.id;

-- name: entry_session
-- The session of an entry.
SELECT session FROM entry WHERE id = :entry;

-- name: facts_of_turn
-- Current facts that were learned from one turn and from nothing else.
SELECT DISTINCT f.* FROM entry e JOIN fact_source s ON s.entry = e.id AND s.used
    JOIN remembered f ON f.id = s.fact
WHERE e.session = :session AND e.turn = :turn AND f.state = 'current' AND f.origin = 'learned'
    AND NOT EXISTS (SELECT 1 FROM fact_source o JOIN entry x ON x.id = o.entry
        WHERE o.fact = f.id AND o.used AND x.turn <> :turn);

-- name: facts_of_places
-- What is remembered in some places, oldest first.
SELECT f.* FROM json_each(:places) CROSS JOIN remembered f ON f.place = json_each.value
WHERE f.state IN (SELECT value FROM json_each(:states))
    AND (:person IS NULL OR f.person = :person)
ORDER BY f.id LIMIT :limit;

-- name: fact_get
-- One fact.
SELECT * FROM remembered WHERE id = :fact;

-- name: fact_known
-- The current fact that says the same.
SELECT * FROM remembered
WHERE place = :place AND form = :form AND state = 'current';

-- name: fact_settled
-- Whether the same was said before, and corrected or removed since.
SELECT 1 FROM fact f LEFT JOIN fact r ON r.id = f.replaced_by
WHERE f.place = :place AND f.form = :form AND (
    (f.state = 'removed' AND f.at >= :said_at) OR (f.state = 'replaced' AND r.said_at >= :said_at));

-- name: fact_add
-- One more fact.
INSERT INTO fact (place, kind, text, form, confidence, origin, person, said_at, at, state, outside)
VALUES (:place, :kind, :text, :form, :confidence, :origin, :person, :said_at, :at, 'current',
    :outside);

-- name: fact_put
-- A fact as it is now.
UPDATE fact SET kind = :kind, text = :text, form = :form, confidence = :confidence,
    origin = :origin, person = :person, said_at = :said_at, at = :at, state = :state,
    replaced_by = :replaced_by, outside = :outside
WHERE id = :fact;

-- name: fact_source_add
-- A message that a fact came from.
INSERT INTO fact_source (fact, entry) VALUES (:fact, :entry)
ON CONFLICT (fact, entry) DO UPDATE SET used = 1;

-- name: fact_sources_unused
-- What a fact no longer stands on.
UPDATE fact_source SET used = 0
WHERE fact = :fact AND entry NOT IN (SELECT value FROM json_each(:entries));

-- name: fact_lines
-- The messages a fact came from.
SELECT e.id, e.turn, e.body, e.at, coalesce(t.person, '') AS person
FROM fact_source s CROSS JOIN entry e ON e.id = s.entry JOIN turn t ON t.id = e.turn
WHERE s.fact = :fact AND s.used ORDER BY e.id;

-- name: facts_replaced_by
-- These facts, and all that they replaced, directly or not.
WITH RECURSIVE chain (id) AS (
    SELECT f.id FROM json_each(:facts) CROSS JOIN fact f ON f.id = json_each.value
    UNION SELECT f.id FROM chain c CROSS JOIN fact f ON f.replaced_by = c.id
)
SELECT f.* FROM chain c CROSS JOIN remembered f ON f.id = c.id ORDER BY f.id;

-- name: memory_commit_add
-- A change of what is remembered.
INSERT INTO memory_commit (kind, place, at, by, note, session, first, last, folded_before,
    folded_since, window_before, summary_before, summary_since, added, removed, forgotten, dedupe)
VALUES (:kind, :place, :at, :by, :note, :session, :first, :last, :folded_before,
    :folded_since, :window_before, :summary_before, :summary_since, :added, :removed, :forgotten,
    :dedupe);

-- name: memory_change_add
-- What it did to one fact.
INSERT INTO memory_change (commit_id, fact, action, before, after)
VALUES (:commit, :fact, :action, :before, :after);

-- name: memory_commit_get
-- One change.
SELECT * FROM memory_commit WHERE id = :commit;

-- name: memory_commit_once
-- The change that was made under this name.
SELECT * FROM memory_commit WHERE dedupe = :dedupe;

-- name: memory_changes
-- What a commit did to each fact.
SELECT * FROM memory_change WHERE commit_id = :commit ORDER BY id;

-- name: memory_commits
-- The newest commits.
SELECT * FROM memory_commit WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: memory_commits_of_places
-- The newest commits of some places.
SELECT m.* FROM json_each(:places) CROSS JOIN memory_commit m ON m.place = json_each.value
WHERE m.id < :before ORDER BY m.id DESC LIMIT :limit;

-- name: memory_commits_of_session
-- The newest commits of a session, in some places or in all.
SELECT * FROM memory_commit WHERE session = :session AND id < :before
    AND (:places IS NULL OR place IN (SELECT value FROM json_each(:places)))
ORDER BY id DESC LIMIT :limit;

-- name: memory_commits_of_fact
-- The newest commits that changed a fact.
SELECT * FROM memory_commit WHERE id < :before
    AND id IN (SELECT commit_id FROM memory_change WHERE fact = :fact)
ORDER BY id DESC LIMIT :limit;

-- name: memory_fold_since
-- Whether more of a session was folded since.
SELECT 1 FROM memory_commit WHERE session = :session AND id > :commit
    AND folded_since IS NOT NULL AND undone_by IS NULL AND kind <> 'undid' LIMIT 1;

-- name: memory_commit_undone
-- It was taken back.
UPDATE memory_commit SET undone_by = :by WHERE id = :commit;

-- name: place_change
-- Something changed in a place.
INSERT INTO memory_place (place, version) VALUES (:place, 1)
ON CONFLICT (place) DO UPDATE SET version = version + 1;

-- name: place_versions
-- How often what is remembered in some places has changed.
SELECT coalesce(p.version, 0) AS version
FROM json_each(:places) LEFT JOIN memory_place p ON p.place = json_each.value ORDER BY json_each.key;

-- name: places_all
-- Every place.
SELECT p.place, p.version, p.view_version,
    (SELECT count(*) FROM fact WHERE place = p.place AND state = 'current') AS facts
FROM memory_place p ORDER BY p.place;

-- name: places_unwritten
-- Places whose view is behind.
SELECT p.place, p.version, p.view_version,
    (SELECT count(*) FROM fact WHERE place = p.place AND state = 'current') AS facts
FROM memory_place p WHERE p.view_version <> p.version ORDER BY p.place;

-- name: place_view
-- A view as it was last written.
SELECT view, view_version FROM memory_place WHERE place = :place AND view IS NOT NULL;

-- name: place_put_view
-- A view was written.
INSERT INTO memory_place (place, version, view_version, view) VALUES (:place, 0, :version, :text)
ON CONFLICT (place) DO UPDATE SET view_version = excluded.view_version, view = excluded.view;

-- name: vectors_missing
-- Current facts without a vector of a model.
SELECT f.id, f.text FROM fact f WHERE f.state = 'current'
    AND NOT EXISTS (SELECT 1 FROM fact_vector WHERE fact = f.id AND model = :model)
ORDER BY f.id LIMIT :limit;

-- name: vector_put
-- A fact that is still current has a vector.
INSERT INTO fact_vector (fact, model, vector)
SELECT id, :model, :vector FROM fact WHERE id = :fact AND state = 'current'
ON CONFLICT (fact, model) DO UPDATE SET vector = excluded.vector;

-- name: vectors_drop
-- The words of a fact are others now.
DELETE FROM fact_vector WHERE fact = :fact;

-- name: vectors_of_places
-- The vectors of what is remembered in some places.
SELECT v.fact, v.vector FROM json_each(:places) CROSS JOIN fact f ON f.place = json_each.value
    JOIN fact_vector v ON v.fact = f.id AND v.model = :model
WHERE f.state = 'current' ORDER BY v.fact;

-- name: fact_words_make
-- The words of current facts; made when they are first needed, for not every SQLite can.
CREATE VIRTUAL TABLE IF NOT EXISTS fact_words
USING fts5(text, tokenize = "unicode61 remove_diacritics 2");

-- name: fact_words_is_made
-- Whether there is an index of them.
SELECT 1 FROM sqlite_schema WHERE name = 'fact_words';

-- name: fact_words_fill
-- All facts are taken in when the index is made.
INSERT INTO fact_words (rowid, text) SELECT id, text FROM fact WHERE state = 'current';

-- name: fact_words_put
-- A fact is in the index.
INSERT INTO fact_words (rowid, text) VALUES (:fact, :text);

-- name: fact_words_drop
-- A fact is not in the index.
DELETE FROM fact_words WHERE rowid = :fact;

-- name: fact_words_find
-- Facts in these words, best first.
SELECT f.* FROM fact_words w CROSS JOIN remembered f ON f.id = w.rowid
WHERE fact_words MATCH :words AND f.state = 'current'
    AND f.place IN (SELECT value FROM json_each(:places))
    AND (:person IS NULL OR f.person = :person)
ORDER BY w.rank, f.id DESC LIMIT :limit;

-- name: fact_words_merge
-- Deleted words leave the index for good as its pieces are merged, so many pages at a time.
INSERT INTO fact_words (fact_words, rank) VALUES ('merge', :pages);

-- name: gone_key_get
-- The key of the digests.
SELECT key FROM gone_key;

-- name: gone_key_put
-- It is made once.
INSERT INTO gone_key (one, key) VALUES (1, :key) ON CONFLICT DO NOTHING;

-- name: gone_put
-- Something was forgotten.
INSERT INTO gone (place, digest, at) VALUES (:place, :digest, :at)
ON CONFLICT (place, digest) DO UPDATE SET at = max(at, excluded.at);

-- name: gone_since
-- Whether it was forgotten after it was said.
SELECT 1 FROM gone WHERE place = :place AND digest = :digest AND at >= :said_at;

-- name: gone_drop
-- A person wants it remembered after all.
DELETE FROM gone WHERE place = :place AND digest = :digest;

-- name: gone_sources_put
-- Nothing more is learned from the messages that these facts came from.
INSERT INTO gone_source (entry)
SELECT DISTINCT entry FROM fact_source WHERE used AND fact IN (SELECT value FROM json_each(:facts))
ON CONFLICT DO NOTHING;

-- name: fact_wordings
-- All words that facts ever had.
SELECT c.fact, json_extract(c.before, '$.text') AS before, json_extract(c.after, '$.text') AS after
FROM json_each(:facts) CROSS JOIN memory_change c ON c.fact = json_each.value;

-- name: facts_delete
-- Facts go for good.
DELETE FROM fact WHERE id IN (SELECT value FROM json_each(:facts));

-- name: fact_sources_delete
-- And where they came from.
DELETE FROM fact_source WHERE fact IN (SELECT value FROM json_each(:facts));

-- name: fact_vectors_delete
-- And their vectors.
DELETE FROM fact_vector WHERE fact IN (SELECT value FROM json_each(:facts));

-- name: memory_changes_delete
-- And what commits tell of them.
DELETE FROM memory_change WHERE fact IN (SELECT value FROM json_each(:facts));

-- name: sessions_of_facts
-- The sessions that facts came from.
SELECT DISTINCT e.session
FROM json_each(:facts) CROSS JOIN fact_source s ON s.fact = json_each.value JOIN entry e ON e.id = s.entry;

-- name: sessions_of_places
-- The sessions that were tended for some places.
SELECT DISTINCT m.session FROM json_each(:places)
    CROSS JOIN memory_commit m ON m.place = json_each.value WHERE m.session IS NOT NULL;

-- name: memory_summaries
-- What commits keep of a session's summaries.
SELECT id, summary_before, summary_since FROM memory_commit
WHERE session = :session AND folded_since IS NOT NULL;

-- name: memory_summaries_put
-- Other words for them.
UPDATE memory_commit SET summary_before = :before, summary_since = :since WHERE id = :commit;

-- name: entries_of_facts
-- What people, or one of them, said that facts came from.
SELECT DISTINCT e.id, e.session, e.turn
FROM json_each(:facts) CROSS JOIN fact_source s ON s.fact = json_each.value
    JOIN entry e ON e.id = s.entry JOIN turn t ON t.id = e.turn
WHERE s.used AND json_extract(e.body, '$.role') = 'user'
    AND (:person IS NULL OR t.person = :person);

-- name: entries_of_turn
-- All that was said in a turn.
SELECT id, body FROM entry WHERE session = :session AND turn = :turn ORDER BY id;

-- name: outbox_of_turn
-- The replies of a turn that are on their way no more.
SELECT id, text FROM outbox
WHERE session = :session AND turn = :turn AND state NOT IN ('waiting', 'sending');

-- name: memory_commands
-- Answered commands that had to do with memory.
SELECT id, payload FROM inbox
WHERE session IS NOT NULL AND kind = 'command' AND state = 'done' AND payload <> '{}'
    AND (payload LIKE '%memory%' OR payload LIKE '%forget%');

-- name: memory_command_blank
-- The words of a command are gone.
UPDATE inbox SET payload = :payload WHERE id = :id;

-- name: memory_command_reply
-- What it was answered, when that is on its way no more.
SELECT id, text FROM outbox WHERE dedupe = :name AND state NOT IN ('waiting', 'sending');

-- name: outbox_blank
-- The words of a reply are gone.
UPDATE outbox SET text = :blank, attachments = NULL WHERE id = :id;

-- name: entry_blank
-- Its words are gone.
UPDATE entry SET body = :body WHERE id = :entry;

-- name: inbox_blank
-- And where they came in.
UPDATE inbox SET payload = json_remove(json_set(payload, '$.text', :blank), '$.attachments')
WHERE turn = :turn AND json_extract(payload, '$.text') = :text;

-- name: entry_unindex
-- And in the index.
DELETE FROM said WHERE rowid = :entry;

-- name: memory_changes_from
-- What commits tell of facts that came from a session.
SELECT c.id, c.before, c.after
FROM (SELECT DISTINCT s.fact FROM entry e JOIN fact_source s ON s.entry = e.id
    WHERE e.session = :session) f CROSS JOIN memory_change c ON c.fact = f.fact;

-- name: memory_change_put
-- It names no message that is gone.
UPDATE memory_change SET before = :before, after = :after WHERE id = :change;

-- name: entries_ids
-- The numbers of a session's entries.
SELECT id FROM entry WHERE session = :session;

-- name: forget_sources
-- A deleted session is where nothing came from: its entries' numbers are given out again.
DELETE FROM fact_source WHERE entry IN (SELECT id FROM entry WHERE session = :session);

-- name: forget_gone_sources
-- The same of what was forgotten.
DELETE FROM gone_source WHERE entry IN (SELECT id FROM entry WHERE session = :session);

-- name: forget_commits
-- What was made of a deleted session; the facts are their people's.
UPDATE memory_commit SET session = NULL, first = NULL, last = NULL, folded_before = NULL,
    folded_since = NULL, window_before = NULL, summary_before = NULL, summary_since = NULL
WHERE session = :session;
