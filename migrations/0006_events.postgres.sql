-- +goose Up
-- What events with an idempotency key were to become, for PostgreSQL. The same tables and columns as 0006_events.sqlite.sql; a test compares them.

-- A row is committed before the event's callbacks are, so that a repetition becomes what the first was to: the same callbacks, to the same
-- endpoints, whoever has subscribed since.
CREATE TABLE events (
	id          TEXT COLLATE "C" PRIMARY KEY,
	project     TEXT COLLATE "C" NOT NULL,
	route       TEXT COLLATE "C" NOT NULL,
	key         TEXT COLLATE "C" NOT NULL,
	fingerprint TEXT NOT NULL,
	created_at  BIGINT NOT NULL
);
CREATE UNIQUE INDEX events_key ON events (project, route, key);
CREATE INDEX events_age ON events (created_at, id);

CREATE TABLE event_targets (
	event_id    TEXT COLLATE "C" NOT NULL,
	endpoint_id TEXT COLLATE "C" NOT NULL,
	callback_id TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (event_id, endpoint_id)
);
