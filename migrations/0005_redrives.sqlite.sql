-- +goose Up
-- Redrives: an action over the callbacks that a filter picked, for SQLite. The same tables and columns as 0005_redrives.postgres.sql; a test compares them.

-- spec is JSON of what it does; gathered_due and gathered_id are where gathering goes on, empty at the beginning.
CREATE TABLE redrives (
	id           TEXT PRIMARY KEY,
	project      TEXT NOT NULL,
	state        TEXT NOT NULL,
	paused       INTEGER NOT NULL DEFAULT 0,
	spec         TEXT NOT NULL,
	actor        TEXT NOT NULL,
	reason       TEXT NOT NULL,
	matched      INTEGER NOT NULL DEFAULT 0,
	done         INTEGER NOT NULL DEFAULT 0,
	failed       INTEGER NOT NULL DEFAULT 0,
	created_at   INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL,
	finished_at  INTEGER NOT NULL DEFAULT 0,
	gathered_due INTEGER NOT NULL DEFAULT 0,
	gathered_id  TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX redrives_project ON redrives (project, id);
CREATE INDEX redrives_open ON redrives (id) WHERE finished_at = 0;

-- What a redrive has still to do. A row goes in the transaction that does it.
CREATE TABLE redrive_items (
	redrive_id  TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	PRIMARY KEY (redrive_id, callback_id)
) STRICT;
