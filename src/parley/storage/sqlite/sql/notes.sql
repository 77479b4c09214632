-- name: note_get
-- Something kept with a session.
SELECT value FROM note WHERE session = :session AND name = :name;

-- name: note_put
-- Keep something with a session that is there.
INSERT INTO note (session, name, value)
SELECT id, :name, :value FROM session WHERE id = :session
ON CONFLICT (session, name) DO UPDATE SET value = excluded.value;

-- name: note_remove
-- It is no longer kept.
DELETE FROM note WHERE session = :session AND name = :name;

-- name: forget_notes
-- What was kept with a deleted session.
DELETE FROM note WHERE session = :session;

-- name: person_setting_get
-- What a person has set.
SELECT value FROM person_setting WHERE person = :person AND name = :name;

-- name: person_setting_put
-- A person sets something.
INSERT INTO person_setting (person, name, value) VALUES (:person, :name, :value)
ON CONFLICT (person, name) DO UPDATE SET value = excluded.value;

-- name: person_setting_remove
-- A person leaves it to the profile.
DELETE FROM person_setting WHERE person = :person AND name = :name;

-- name: person_settings
-- Everything a person has set.
SELECT name, value FROM person_setting WHERE person = :person;

-- name: mark_get
-- One mark.
SELECT value FROM mark WHERE name = :name;

-- name: marks_by_prefix
-- The marks whose names begin so.
SELECT name, value FROM mark WHERE name >= :prefix AND name < :beyond;

-- name: mark_put
-- A surface goes on from here.
INSERT INTO mark (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: mark_remove
-- It is no longer kept.
DELETE FROM mark WHERE name = :name;
