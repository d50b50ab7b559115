-- +goose Up
-- Endpoints, settings of projects and lanes, keys, presets, secrets that are not a project's root, supersede and strict order, for
-- SQLite. The same tables and columns as 0002_endpoints.postgres.sql; a test compares them. Everything is added: what an older
-- process writes gets the defaults, and what it reads means what it did. The new indexes of callbacks are in 0003_callback_indexes.

-- Changes of settings are numbered: the row is locked by each transaction that makes one, so that they become visible in order.
CREATE TABLE versions (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT;
INSERT INTO versions (name, value) SELECT 'settings', COALESCE(MAX(version), 0) FROM lanes;

ALTER TABLE projects ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE projects ADD COLUMN defaults TEXT NOT NULL DEFAULT '';
ALTER TABLE projects ADD COLUMN paused_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN pause_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE projects ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX projects_version ON projects (version) WHERE version > 0;

-- paused_until is the last of the three others, so that an older process holds what it should. rate_count attempts may begin in
-- each rate_per_ms; zero: no bound.
ALTER TABLE lanes ADD COLUMN rate_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN rate_per_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN own_paused_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN endpoint_paused_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN project_paused_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN pause_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE lanes ADD COLUMN endpoint_id TEXT NOT NULL DEFAULT '';
UPDATE lanes SET own_paused_until = paused_until WHERE paused_until > 0;

-- canceling is the place up to which the callbacks of a deleted endpoint have still to be looked at for open ones: those with ids
-- below it; empty: none.
CREATE TABLE endpoints (
	id              TEXT PRIMARY KEY,
	lane            INTEGER NOT NULL,
	version         INTEGER NOT NULL,
	rate_count      INTEGER NOT NULL,
	rate_per_ms     INTEGER NOT NULL,
	paused_until    INTEGER NOT NULL,
	failing_since   INTEGER NOT NULL DEFAULT 0,
	alerted_at      INTEGER NOT NULL DEFAULT 0,
	last_success_at INTEGER NOT NULL DEFAULT 0,
	last_failure_at INTEGER NOT NULL DEFAULT 0,
	created_at      INTEGER NOT NULL,
	updated_at      INTEGER NOT NULL,
	deleted_at      INTEGER NOT NULL DEFAULT 0,
	concurrency     INTEGER NOT NULL,
	enabled         INTEGER NOT NULL,
	project         TEXT NOT NULL,
	external_id     TEXT NOT NULL,
	name            TEXT NOT NULL,
	url             TEXT NOT NULL,
	url_override    TEXT NOT NULL,
	topics          TEXT NOT NULL,
	policy          TEXT NOT NULL,
	success         TEXT NOT NULL,
	signer          TEXT NOT NULL,
	headers         TEXT NOT NULL,
	disabled_reason TEXT NOT NULL,
	pause_reason    TEXT NOT NULL,
	canceling       TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX endpoints_project ON endpoints (project, id) WHERE deleted_at = 0;
CREATE UNIQUE INDEX endpoints_external ON endpoints (project, external_id) WHERE external_id <> '' AND deleted_at = 0;
CREATE INDEX endpoints_topics ON endpoints (project, id) WHERE topics <> '' AND deleted_at = 0;
CREATE INDEX endpoints_version ON endpoints (version);
CREATE INDEX endpoints_failing ON endpoints (failing_since) WHERE failing_since > 0;
CREATE INDEX endpoints_canceling ON endpoints (id) WHERE canceling <> '';

-- kind is policy, success_rule or profile; value is JSON.
CREATE TABLE presets (
	project    TEXT NOT NULL,
	kind       TEXT NOT NULL,
	name       TEXT NOT NULL,
	value      TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (project, kind, name)
) STRICT;

-- hash is SHA-256 of the key's text in hexadecimal, scopes a JSON list.
CREATE TABLE api_keys (
	id           TEXT PRIMARY KEY,
	project      TEXT NOT NULL,
	name         TEXT NOT NULL,
	scopes       TEXT NOT NULL,
	hash         TEXT NOT NULL UNIQUE,
	hint         TEXT NOT NULL,
	created_at   INTEGER NOT NULL,
	expires_at   INTEGER NOT NULL,
	revoked_at   INTEGER NOT NULL DEFAULT 0,
	last_used_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX api_keys_project ON api_keys (project, id);

-- Secrets of endpoints (owner is the endpoint's id), and those of a project (owner is empty) that are for one kind of signer. A project's
-- root secret stays in the table secrets, where an older process takes all that there is for it.
CREATE TABLE owned_secrets (
	id         TEXT PRIMARY KEY,
	project    TEXT NOT NULL,
	owner      TEXT NOT NULL,
	use        TEXT NOT NULL,
	label      TEXT NOT NULL,
	key_id     TEXT NOT NULL,
	ciphertext BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	retired_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX owned_secrets_present ON owned_secrets (project, owner, use) WHERE retired_at = 0;
CREATE INDEX owned_secrets_owner ON owned_secrets (project, owner, id);

-- The highest version that was accepted of each (topic, ref) whose callbacks supersede each other.
CREATE TABLE refs_latest (
	project    TEXT NOT NULL,
	topic      TEXT NOT NULL,
	ref        TEXT NOT NULL,
	version    INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (project, topic, ref)
) STRICT;
CREATE INDEX refs_latest_age ON refs_latest (updated_at);

-- follows: the address is its endpoint's. strict: among those of its lock key that are strict too it waits for all before it. An open row whose
-- cancel is requested has in reason what it will end as; empty: requested.
ALTER TABLE callbacks ADD COLUMN follows INTEGER NOT NULL DEFAULT 0;
ALTER TABLE callbacks ADD COLUMN strict INTEGER NOT NULL DEFAULT 0;
