-- +goose NO TRANSACTION
-- +goose Up
-- Indexes of callbacks, on PostgreSQL without keeping anybody from writing: the table may be large, and older processes go on meanwhile.
-- One that was not finished is left behind as invalid, and made anew.

-- Callbacks of an endpoint, newest first.
DROP INDEX CONCURRENTLY IF EXISTS callbacks_endpoint;
CREATE INDEX CONCURRENTLY callbacks_endpoint ON callbacks (project, endpoint_id, id) WHERE endpoint_id <> '';
-- Which of a lock key is next.
DROP INDEX CONCURRENTLY IF EXISTS callbacks_strict;
CREATE INDEX CONCURRENTLY callbacks_strict ON callbacks (project, lock_key, id) WHERE strict = 1 AND state = 'scheduled';
