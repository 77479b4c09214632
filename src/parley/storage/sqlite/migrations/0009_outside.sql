-- Sources of text that nobody in the conversation wrote: before a session's window, and of facts.
ALTER TABLE session ADD COLUMN outside TEXT NOT NULL DEFAULT '';
ALTER TABLE fact ADD COLUMN outside TEXT NOT NULL DEFAULT '';
