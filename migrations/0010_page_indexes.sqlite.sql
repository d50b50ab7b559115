-- +goose Up
-- Indexes of tables that may be large. On PostgreSQL they are made beside all that goes on: see 0010_page_indexes.postgres.sql.

-- Callbacks of a lock key, newest first.
CREATE INDEX callbacks_lock ON callbacks (project, lock_key, id) WHERE lock_key <> '';
-- Dead callbacks by what they died of, newest first: each group's first and last are found without the others.
CREATE INDEX callbacks_dead ON callbacks (project, reason, last_class, last_status, id) WHERE state = 'dead';
-- Dead callbacks of a lane, newest first. Only who dies pays for it.
CREATE INDEX callbacks_dead_lane ON callbacks (lane, id) WHERE state = 'dead';
-- What was done to one object, newest first.
CREATE INDEX audit_object ON audit (project, object, id);
