-- +goose Up
-- Indexes of callbacks. On PostgreSQL they are made beside all that goes on: see 0003_callback_indexes.postgres.sql.

-- Callbacks of an endpoint, newest first.
CREATE INDEX callbacks_endpoint ON callbacks (project, endpoint_id, id) WHERE endpoint_id <> '';
-- Which of a lock key is next.
CREATE INDEX callbacks_strict ON callbacks (project, lock_key, id) WHERE strict = 1 AND state = 'scheduled';
