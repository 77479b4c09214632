-- Why a yes to a question holds for one call only; empty where it may hold for longer.
ALTER TABLE question ADD COLUMN once TEXT NOT NULL DEFAULT '';

-- What was allowed for longer was allowed by the text of a command, whatever its scripts became,
-- and a line break in it looked like the two characters `\n`: such a yes is asked for again.
DELETE FROM permit WHERE tool IN ('terminal', 'process');
