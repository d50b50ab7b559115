-- +goose Up
-- An index of callbacks. On PostgreSQL it is made beside all that goes on: see 0008_poll_list.postgres.sql.

-- Polls, newest first: a few among many callbacks.
CREATE INDEX callbacks_polls ON callbacks (project, id) WHERE kind = 'poll';
