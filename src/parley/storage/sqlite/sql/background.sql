-- name: work_begin
-- Something runs in the background for a session of this lane.
INSERT INTO work (id, session, owner, at)
SELECT :work, id, :owner, :at FROM session WHERE id = :session AND lane = :lane
ON CONFLICT (id) DO UPDATE SET session = excluded.session, owner = excluded.owner,
    at = excluded.at;

-- name: work_end
-- It is over.
DELETE FROM work WHERE id = :work RETURNING session;

-- name: works_of_session
-- What runs in the background for a session, oldest first.
SELECT w.id, s.lane, w.session, w.owner, w.at FROM work w JOIN session s ON s.id = w.session
WHERE w.session = :session ORDER BY w.at, w.id;

-- name: works_recover
-- What dead owners ran in the background is over.
DELETE FROM work WHERE owner <> :owner;
