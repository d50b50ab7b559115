-- +goose Up
-- What the admin pages look at, for PostgreSQL. The same tables and columns as 0009_pages.sqlite.sql; a test compares them. Everything is added.
-- The new indexes of tables that may be large are in 0010_page_indexes.

-- When the generation that is built was.
ALTER TABLE index_meta ADD COLUMN built_at BIGINT NOT NULL DEFAULT 0;

-- What happened within one span, of so many milliseconds, that began at that time, in a lane or, where that is 0, in all lanes of a project.
-- lateness_N and took_N count attempts by how late they began and how long they took: the bounds are in package store.
CREATE TABLE activity (
	project     TEXT COLLATE "C" NOT NULL,
	lane        BIGINT NOT NULL,
	span        BIGINT NOT NULL,
	at          BIGINT NOT NULL,
	accepted    BIGINT NOT NULL,
	succeeded   BIGINT NOT NULL,
	failed      BIGINT NOT NULL,
	unknown     BIGINT NOT NULL,
	dead        BIGINT NOT NULL,
	lateness_0  BIGINT NOT NULL,
	lateness_1  BIGINT NOT NULL,
	lateness_2  BIGINT NOT NULL,
	lateness_3  BIGINT NOT NULL,
	lateness_4  BIGINT NOT NULL,
	lateness_5  BIGINT NOT NULL,
	lateness_6  BIGINT NOT NULL,
	lateness_7  BIGINT NOT NULL,
	lateness_8  BIGINT NOT NULL,
	lateness_9  BIGINT NOT NULL,
	lateness_10 BIGINT NOT NULL,
	lateness_11 BIGINT NOT NULL,
	took_0      BIGINT NOT NULL,
	took_1      BIGINT NOT NULL,
	took_2      BIGINT NOT NULL,
	took_3      BIGINT NOT NULL,
	took_4      BIGINT NOT NULL,
	took_5      BIGINT NOT NULL,
	took_6      BIGINT NOT NULL,
	took_7      BIGINT NOT NULL,
	took_8      BIGINT NOT NULL,
	took_9      BIGINT NOT NULL,
	took_10     BIGINT NOT NULL,
	took_11     BIGINT NOT NULL,
	PRIMARY KEY (project, lane, span, at)
);
-- What is kept for how long.
CREATE INDEX activity_age ON activity (span, at) WHERE lane = 0;
CREATE INDEX activity_lanes_age ON activity (at) WHERE lane > 0;

-- The processes that run, each as it has last reported itself.
CREATE TABLE dispatchers (
	name         TEXT COLLATE "C" PRIMARY KEY,
	host         TEXT NOT NULL,
	version      TEXT NOT NULL,
	roles        TEXT NOT NULL,
	workers      BIGINT NOT NULL,
	in_flight    BIGINT NOT NULL,
	held         BIGINT NOT NULL,
	draining     BIGINT NOT NULL,
	clock_offset BIGINT NOT NULL,
	started_at   BIGINT NOT NULL,
	seen_at      BIGINT NOT NULL
);
CREATE INDEX dispatchers_seen ON dispatchers (seen_at);

-- Browsers that have signed in. token is a hash of what the cookie says; data belongs to whoever made the row, and has no secret in it.
CREATE TABLE sessions (
	token      TEXT COLLATE "C" PRIMARY KEY,
	data       BYTEA NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_expiry ON sessions (expires_at);
