-- +goose Up
-- What events with an idempotency key were to become, for SQLite. The same tables and columns as 0006_events.postgres.sql; a test compares them.

-- A row is committed before the event's callbacks are, so that a repetition becomes what the first was to: the same callbacks, to the same
-- endpoints, whoever has subscribed since.
CREATE TABLE events (
	id          TEXT PRIMARY KEY,
	project     TEXT NOT NULL,
	route       TEXT NOT NULL,
	key         TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	created_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_key ON events (project, route, key);
CREATE INDEX events_age ON events (created_at, id);

CREATE TABLE event_targets (
	event_id    TEXT NOT NULL,
	endpoint_id TEXT NOT NULL,
	callback_id TEXT NOT NULL,
	PRIMARY KEY (event_id, endpoint_id)
) STRICT;
