-- +goose Up
-- The feed of what has ended, for SQLite. The same tables and columns as 0004_outcomes.postgres.sql; a test compares them.

-- One row a committed group: JSON of counters and their differences, as in counter_deltas, and of what has ended by it. It takes the place of
-- counter_deltas, which an older process goes on writing, and whose rows an older process takes away: what has ended would be lost.
CREATE TABLE commit_notes (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	deltas   TEXT NOT NULL,
	outcomes TEXT NOT NULL
) STRICT;

-- What has ended, in order, as it was taken from commit_notes by one transaction after the other. at is when, and never less than before.
CREATE TABLE outcomes (
	project TEXT NOT NULL,
	at      INTEGER NOT NULL,
	id      INTEGER NOT NULL,
	entries TEXT NOT NULL,
	PRIMARY KEY (project, at, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX outcomes_age ON outcomes (at);
INSERT INTO versions (name, value) VALUES ('outcomes', 0), ('outcomes_at', 0);
