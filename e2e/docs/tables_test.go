package docs

// outboxTables are the outbox tables of the databases.
var outboxTables = map[string]string{
	onPostgres: `CREATE TABLE dispatcher_outbox (
		seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		id TEXT NOT NULL CHECK (char_length(id) BETWEEN 1 AND 128),
		kind TEXT NOT NULL DEFAULT 'callback',
		request TEXT NOT NULL,
		body BYTEA,
		created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
	)`,
	onMariaDB: `CREATE TABLE dispatcher_outbox (
		seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
		id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
		kind VARCHAR(16) CHARACTER SET ascii NOT NULL DEFAULT 'callback',
		request MEDIUMBLOB NOT NULL,
		body MEDIUMBLOB NULL,
		created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
	) ENGINE=InnoDB`,
}
