-- name: user_add
-- Someone speaks for the first time.
INSERT INTO user (platform, external_id, display_name, created_at)
VALUES (:platform, :external_id, :display_name, :at)
ON CONFLICT (platform, external_id) DO NOTHING;

-- name: user_rename
-- They are called something else now.
UPDATE user SET display_name = :display_name
WHERE platform = :platform AND external_id = :external_id AND display_name IS NOT :display_name;

-- name: user_get
-- Someone who has spoken.
SELECT * FROM user WHERE platform = :platform AND external_id = :external_id;

-- name: users
-- Those who came last.
SELECT * FROM user ORDER BY id DESC LIMIT :limit;

-- name: chat_next
-- The number of a person's next chat; none is given twice.
INSERT INTO chat_count (person, last) VALUES (:person, 1)
ON CONFLICT (person) DO UPDATE SET last = last + 1 RETURNING last;

-- name: chat_add
-- A person opens a chat.
INSERT INTO chat (person, number, key, name, lane, session, created_at)
VALUES (:person, :number, :key, :name, :lane, :session, :at);

-- name: chat_get
-- One chat.
SELECT * FROM chat WHERE person = :person AND number = :number;

-- name: chat_of_key
-- The chat that was opened for this.
SELECT * FROM chat WHERE person = :person AND key = :key;

-- name: chat_place
-- A chat is in this lane from now on. One that is a session stays in its lane, and may have it for itself.
UPDATE chat SET lane = :lane, own_lane = 1, source = :source, session = coalesce(session, :session)
WHERE person = :person AND number = :number AND (own_lane OR lane IS NULL OR lane = :lane);

-- name: chat_at
-- The chat that has a lane for itself. Where two lanes became one, one that is in use comes first.
SELECT * FROM chat WHERE lane = :lane AND own_lane ORDER BY archived, created_at, number LIMIT 1;

-- name: chats_of_person
-- A person's chats, the oldest first.
SELECT * FROM chat WHERE person = :person ORDER BY number;

-- name: chats_unplaced
-- Those that have no place yet, the oldest first.
SELECT * FROM chat WHERE lane IS NULL ORDER BY created_at, person, number;

-- name: chat_name
-- A person gives it another name.
UPDATE chat SET name = :name WHERE person = :person AND number = :number;

-- name: chat_archive
-- A person puts it away, or takes it up again.
UPDATE chat SET archived = :archived
WHERE person = :person AND number = :number AND archived <> :archived;

-- name: chats_archived
-- The lanes whose own chat is put away.
SELECT DISTINCT lane FROM chat c WHERE own_lane AND archived
    AND NOT EXISTS (SELECT 1 FROM chat WHERE lane = c.lane AND own_lane AND archived = 0)
ORDER BY lane;

-- name: forget_chats
-- A chat that was no more than the deleted session.
DELETE FROM chat WHERE session = :session AND own_lane = 0;

-- name: forget_beginnings
-- A chat that began with the deleted session stays where it is.
UPDATE chat SET session = NULL WHERE session = :session;
