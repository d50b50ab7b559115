-- +goose NO TRANSACTION
-- +goose Up
-- Indexes of tables that may be large, on PostgreSQL without keeping anybody from writing: other processes go on meanwhile.
-- One that was not finished is left behind as invalid, and made anew.

-- Callbacks of a lock key, newest first.
DROP INDEX CONCURRENTLY IF EXISTS callbacks_lock;
CREATE INDEX CONCURRENTLY callbacks_lock ON callbacks (project, lock_key, id) WHERE lock_key <> '';
-- Dead callbacks by what they died of, newest first: each group's first and last are found without the others.
DROP INDEX CONCURRENTLY IF EXISTS callbacks_dead;
CREATE INDEX CONCURRENTLY callbacks_dead ON callbacks (project, reason, last_class, last_status, id) WHERE state = 'dead';
-- Dead callbacks of a lane, newest first. Only who dies pays for it.
DROP INDEX CONCURRENTLY IF EXISTS callbacks_dead_lane;
CREATE INDEX CONCURRENTLY callbacks_dead_lane ON callbacks (lane, id) WHERE state = 'dead';
-- What was done to one object, newest first.
DROP INDEX CONCURRENTLY IF EXISTS audit_object;
CREATE INDEX CONCURRENTLY audit_object ON audit (project, object, id);
