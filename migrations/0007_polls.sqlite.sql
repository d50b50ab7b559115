-- +goose Up
-- Polls, and schedules, for SQLite. The same tables and columns as 0007_polls.postgres.sql; a test compares them.

-- How many polls in a row have ended in an error.
ALTER TABLE callbacks ADD COLUMN poll_errors INTEGER NOT NULL DEFAULT 0;

-- What a callback of kind poll has beside its row. live is a hash of project, reference and address while it is open: there is one of each.
-- context and data are JSON as callers gave it; on_result is JSON of the callback that tells the result, empty: none does. outcome is what
-- was told last, result_id the callback that tells it.
CREATE TABLE polls (
	id        TEXT PRIMARY KEY,
	project   TEXT NOT NULL,
	live      TEXT NOT NULL,
	context   TEXT NOT NULL,
	on_result TEXT NOT NULL,
	outcome   TEXT NOT NULL DEFAULT '',
	result_id TEXT NOT NULL DEFAULT '',
	data      TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX polls_live ON polls (live) WHERE live <> '';
-- Whether a callback tells a result.
CREATE INDEX polls_result ON polls (result_id) WHERE result_id <> '';

-- next_at is the next due time, zero while there is none. Who raises it makes the callback of the time that it was, in one transaction.
CREATE TABLE schedules (
	id         TEXT PRIMARY KEY,
	project    TEXT NOT NULL,
	name       TEXT NOT NULL,
	cron       TEXT NOT NULL,
	timezone   TEXT NOT NULL,
	template   TEXT NOT NULL,
	missed     TEXT NOT NULL,
	enabled    INTEGER NOT NULL,
	next_at    INTEGER NOT NULL,
	last_at    INTEGER NOT NULL DEFAULT 0,
	last_id    TEXT NOT NULL DEFAULT '',
	last_error TEXT NOT NULL DEFAULT '',
	version    INTEGER NOT NULL DEFAULT 1,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX schedules_name ON schedules (project, name);
CREATE INDEX schedules_project ON schedules (project, id);
CREATE INDEX schedules_next ON schedules (next_at) WHERE next_at > 0;

-- The last callbacks that each schedule has made.
CREATE TABLE schedule_runs (
	schedule_id TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	due_at      INTEGER NOT NULL,
	fired_at    INTEGER NOT NULL,
	trigger     TEXT NOT NULL,
	PRIMARY KEY (schedule_id, callback_id)
) STRICT;
