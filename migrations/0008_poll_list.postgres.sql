-- +goose NO TRANSACTION
-- +goose Up
-- An index of callbacks, on PostgreSQL without keeping anybody from writing: the table may be large, and other processes go on meanwhile.
-- One that was not finished is left behind as invalid, and made anew.

-- Polls, newest first: a few among many callbacks.
DROP INDEX CONCURRENTLY IF EXISTS callbacks_polls;
CREATE INDEX CONCURRENTLY callbacks_polls ON callbacks (project, id) WHERE kind = 'poll';
