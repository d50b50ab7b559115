-- +goose Up
-- What the admin pages look at, for SQLite. The same tables and columns as 0009_pages.postgres.sql; a test compares them. Everything is added.
-- The new indexes of tables that may be large are in 0010_page_indexes.

-- When the generation that is built was.
ALTER TABLE index_meta ADD COLUMN built_at INTEGER NOT NULL DEFAULT 0;

-- What happened within one span, of so many milliseconds, that began at that time, in a lane or, where that is 0, in all lanes of a project.
-- lateness_N and took_N count attempts by how late they began and how long they took: the bounds are in package store.
CREATE TABLE activity (
	project     TEXT NOT NULL,
	lane        INTEGER NOT NULL,
	span        INTEGER NOT NULL,
	at          INTEGER NOT NULL,
	accepted    INTEGER NOT NULL,
	succeeded   INTEGER NOT NULL,
	failed      INTEGER NOT NULL,
	unknown     INTEGER NOT NULL,
	dead        INTEGER NOT NULL,
	lateness_0  INTEGER NOT NULL,
	lateness_1  INTEGER NOT NULL,
	lateness_2  INTEGER NOT NULL,
	lateness_3  INTEGER NOT NULL,
	lateness_4  INTEGER NOT NULL,
	lateness_5  INTEGER NOT NULL,
	lateness_6  INTEGER NOT NULL,
	lateness_7  INTEGER NOT NULL,
	lateness_8  INTEGER NOT NULL,
	lateness_9  INTEGER NOT NULL,
	lateness_10 INTEGER NOT NULL,
	lateness_11 INTEGER NOT NULL,
	took_0      INTEGER NOT NULL,
	took_1      INTEGER NOT NULL,
	took_2      INTEGER NOT NULL,
	took_3      INTEGER NOT NULL,
	took_4      INTEGER NOT NULL,
	took_5      INTEGER NOT NULL,
	took_6      INTEGER NOT NULL,
	took_7      INTEGER NOT NULL,
	took_8      INTEGER NOT NULL,
	took_9      INTEGER NOT NULL,
	took_10     INTEGER NOT NULL,
	took_11     INTEGER NOT NULL,
	PRIMARY KEY (project, lane, span, at)
) STRICT, WITHOUT ROWID;
-- What is kept for how long.
CREATE INDEX activity_age ON activity (span, at) WHERE lane = 0;
CREATE INDEX activity_lanes_age ON activity (at) WHERE lane > 0;

-- The processes that run, each as it has last reported itself.
CREATE TABLE dispatchers (
	name         TEXT PRIMARY KEY,
	host         TEXT NOT NULL,
	version      TEXT NOT NULL,
	roles        TEXT NOT NULL,
	workers      INTEGER NOT NULL,
	in_flight    INTEGER NOT NULL,
	held         INTEGER NOT NULL,
	draining     INTEGER NOT NULL,
	clock_offset INTEGER NOT NULL,
	started_at   INTEGER NOT NULL,
	seen_at      INTEGER NOT NULL
) STRICT;
CREATE INDEX dispatchers_seen ON dispatchers (seen_at);

-- Browsers that have signed in. token is a hash of what the cookie says; data belongs to whoever made the row, and has no secret in it.
CREATE TABLE sessions (
	token      TEXT PRIMARY KEY,
	data       BLOB NOT NULL,
	expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_expiry ON sessions (expires_at);
