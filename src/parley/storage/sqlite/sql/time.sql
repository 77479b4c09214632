-- name: job_put
-- Plan a job, in place of an earlier one of that name.
INSERT INTO job (id, lane, payload, cron, every, timezone, next_at)
VALUES (:id, :lane, :payload, :cron, :every, :timezone, :next_at)
ON CONFLICT (id) DO UPDATE SET lane = excluded.lane, payload = excluded.payload,
    cron = excluded.cron, every = excluded.every, timezone = excluded.timezone,
    next_at = excluded.next_at;

-- name: job_delete
-- Forget a job.
DELETE FROM job WHERE id = :id;

-- name: job_delete_of_lane
-- Forget a job, when it is of this lane.
DELETE FROM job WHERE id = :id AND lane = :lane;

-- name: jobs_of_lane
-- What is planned for a lane, the next one first.
SELECT id, lane, payload, cron, every, timezone, next_at FROM job
WHERE lane = :lane ORDER BY next_at, id;

-- name: jobs_under
-- What is planned for lanes that begin so, a page at a time.
SELECT id, lane, payload, cron, every, timezone, next_at FROM job
WHERE lane >= :lanes AND lane < :beyond AND (next_at, id) > (:at, :id) ORDER BY next_at, id LIMIT :limit;

-- name: jobs_due
-- Jobs whose time has come.
SELECT id, lane, payload, cron, every, timezone, next_at FROM job
WHERE next_at <= :now ORDER BY next_at;

-- name: job_next_at
-- When the next job is due.
SELECT min(next_at) FROM job;

-- name: job_move
-- The job's next time.
UPDATE job SET next_at = :next_at WHERE id = :id;

-- name: probe
-- The smallest write there is.
INSERT INTO probe (one, at) VALUES (1, :at) ON CONFLICT (one) DO UPDATE SET at = excluded.at;

-- name: bucket_get
-- What a person has left.
SELECT tokens, at FROM bucket WHERE user = :user;

-- name: bucket_put
-- Count what a person used.
INSERT INTO bucket (user, tokens, at) VALUES (:user, :tokens, :at)
ON CONFLICT (user) DO UPDATE SET tokens = excluded.tokens, at = excluded.at;
