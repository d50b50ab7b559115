-- +goose Up
-- Redrives: an action over the callbacks that a filter picked, for PostgreSQL. The same tables and columns as 0005_redrives.sqlite.sql; a test compares them.

-- spec is JSON of what it does; gathered_due and gathered_id are where gathering goes on, empty at the beginning.
CREATE TABLE redrives (
	id           TEXT COLLATE "C" PRIMARY KEY,
	project      TEXT COLLATE "C" NOT NULL,
	state        TEXT NOT NULL,
	paused       INTEGER NOT NULL DEFAULT 0,
	spec         TEXT NOT NULL,
	actor        TEXT NOT NULL,
	reason       TEXT NOT NULL,
	matched      BIGINT NOT NULL DEFAULT 0,
	done         BIGINT NOT NULL DEFAULT 0,
	failed       BIGINT NOT NULL DEFAULT 0,
	created_at   BIGINT NOT NULL,
	updated_at   BIGINT NOT NULL,
	finished_at  BIGINT NOT NULL DEFAULT 0,
	gathered_due BIGINT NOT NULL DEFAULT 0,
	gathered_id  TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX redrives_project ON redrives (project, id);
CREATE INDEX redrives_open ON redrives (id) WHERE finished_at = 0;

-- What a redrive has still to do. A row goes in the transaction that does it.
CREATE TABLE redrive_items (
	redrive_id  TEXT COLLATE "C" NOT NULL,
	callback_id TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (redrive_id, callback_id)
);
