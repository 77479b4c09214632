-- name: item_add
-- One more item of a response, of a conversation, or of both.
INSERT INTO item (id, owner, request, conversation, output, instructs, body)
VALUES (:id, :owner, :request, :conversation, :output, :instructs, :body);

-- name: items_by_id
-- The items of these ids, those that were answered before those that were given.
SELECT id, body FROM item
WHERE id IN (SELECT value FROM json_each(:ids)) AND owner = :owner
ORDER BY output, number;

-- name: items_given
-- What was given with a response, behind or before an item of it.
SELECT number, id, body FROM item
WHERE request = :parent AND output = 0 AND number > :after ORDER BY number LIMIT :limit;

-- name: items_given_backwards
-- The same, the newest first.
SELECT number, id, body FROM item
WHERE request = :parent AND output = 0 AND number < :after ORDER BY number DESC LIMIT :limit;

-- name: items_of_conversation
-- What is in a conversation, behind an item of it.
SELECT number, id, body FROM item
WHERE conversation = :parent AND number > :after ORDER BY number LIMIT :limit;

-- name: items_of_conversation_backwards
-- The same, the newest first.
SELECT number, id, body FROM item
WHERE conversation = :parent AND number < :after ORDER BY number DESC LIMIT :limit;

-- name: item_given
-- An item that was given with a response.
SELECT number, id, body FROM item WHERE id = :id AND request = :parent AND output = 0;

-- name: item_of_conversation
-- An item of a conversation.
SELECT number, id, body FROM item WHERE id = :id AND conversation = :parent;

-- name: items_let_go
-- Items of a response that goes, where a conversation has them too.
UPDATE item SET request = NULL WHERE request = :id AND conversation IS NOT NULL;

-- name: items_remove
-- The items of a response.
DELETE FROM item WHERE request = :id;

-- name: item_remove
-- An item leaves its conversation.
DELETE FROM item WHERE number = :number;

-- name: item_leave
-- An item leaves its conversation, and stays in its response.
UPDATE item SET conversation = NULL WHERE number = :number AND request IS NOT NULL;

-- name: items_instruct
-- What says how to answer in a conversation.
SELECT body FROM item WHERE conversation = :id AND instructs = 1 ORDER BY number;

-- name: items_ids
-- The ids of all that is in a conversation.
SELECT id FROM item WHERE conversation = :id ORDER BY number;

-- name: items_count
-- How many items a conversation has.
SELECT count(*) FROM item WHERE conversation = :id;

-- name: conversation_add
-- A program made a conversation.
INSERT INTO conversation (id, owner, lane, metadata, created_at)
VALUES (:id, :owner, :lane, :metadata, :at);

-- name: conversation_get
-- One conversation.
SELECT * FROM conversation WHERE id = :id;

-- name: conversation_note
-- A program's own notes on a conversation.
UPDATE conversation SET metadata = :metadata WHERE id = :id;

-- name: conversation_remove
-- The conversation itself.
DELETE FROM conversation WHERE id = :id;

-- name: conversation_remove_items
-- All that is in a conversation.
DELETE FROM item WHERE conversation = :id;

-- name: conversation_sessions
-- Every session of a lane.
SELECT id FROM session WHERE lane = :lane;

-- name: forget_request_items
-- The items of a deleted session's responses.
DELETE FROM item WHERE request IN (
    SELECT id FROM request WHERE dedupe IN (
        SELECT dedupe FROM inbox WHERE turn IN (SELECT id FROM turn WHERE session = :session)
        UNION ALL SELECT dedupe FROM inbox WHERE session = :session));

-- name: forget_conversation_items
-- The items of the conversation that a deleted session is.
DELETE FROM item WHERE conversation IN (
    SELECT c.id FROM session s JOIN lane l ON l.key = s.lane AND l.session = s.id
    JOIN conversation c ON c.lane = l.key WHERE s.id = :session);

-- name: adopt_conversations
-- Conversations follow their lane.
UPDATE conversation SET lane = renamed(lane, :namespace)
WHERE lane > 'agent:' AND lane < 'agent;' AND lane <> renamed(lane, :namespace);
