package source

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// DDLOptions are the options of DDL.
type DDLOptions struct {
	// Table may have a schema or database before a dot. Empty: DefaultTable.
	Table string
	// Keep adds the table of removed rows.
	Keep bool
	// Grant is the user of the relay, for MySQL perhaps with @host. It gets the rights that it needs. Empty:
	// no one does.
	Grant string
}

// DDL returns the statements that create the tables of a source, for psql or mysql. Tables that exist are not
// changed.
func DDL(d Dialect, o DDLOptions) (string, error) {
	t, err := tablesOf(d, o.Table)
	if err != nil {
		return "", err
	}
	if o.Grant != "" && !plainUser.MatchString(o.Grant) {
		return "", fmt.Errorf("user %.80q is not a plain name", o.Grant)
	}
	text := postgresDDL
	done := postgresDoneDDL
	switch d {
	case Postgres:
	case MySQL:
		text, done = mysqlDDL, mysqlDoneDDL
	default:
		return "", errors.New("the dialect is not postgres or mysql")
	}
	if o.Keep {
		text += done
	}
	if o.Grant != "" {
		text += o.grants(d, t)
	}
	// An index is in the schema of its table.
	index := d.quote(t.name[strings.Index(t.name, ".")+1:] + "_refusals")
	return strings.NewReplacer("{outbox}", t.outbox, "{refused}", t.refused, "{done}", t.done, "{refusals}",
		index).Replace(text), nil
}

var plainUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}(@[A-Za-z0-9_.:%-]{1,255})?$`)

// quoteUser quotes a plain user.
func (d Dialect) quoteUser(user string) string {
	if d == Postgres {
		return `"` + strings.ReplaceAll(user, `"`, `""`) + `"`
	}
	name, host, ok := strings.Cut(user, "@")
	if !ok {
		host = "%"
	}
	return "'" + name + "'@'" + host + "'"
}

// grants are the rights of the relay.
func (o DDLOptions) grants(d Dialect, t tables) string {
	user := d.quoteUser(o.Grant)
	var b strings.Builder
	if schema, _, ok := strings.Cut(t.outbox, "."); ok && d == Postgres {
		fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA %s TO %s;\n", schema, user)
	}
	fmt.Fprintf(&b, "GRANT SELECT, DELETE ON {outbox} TO %s;\n", user)
	fmt.Fprintf(&b, "GRANT SELECT, INSERT, UPDATE, DELETE ON {refused} TO %s;\n", user)
	if o.Keep {
		fmt.Fprintf(&b, "GRANT SELECT, INSERT, DELETE ON {done} TO %s;\n", user)
	}
	return b.String()
}

// postgresCopied and mysqlCopied are the columns that refused and removed rows keep.
const postgresCopied = `  seq BIGINT NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  request TEXT NOT NULL,
  body BYTEA,
  created_at TIMESTAMPTZ NOT NULL,
`

const mysqlCopied = `  seq BIGINT NOT NULL,
  id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  kind VARCHAR(16) CHARACTER SET ascii NOT NULL,
  request MEDIUMBLOB NOT NULL,
  body MEDIUMBLOB NULL,
  created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
`

// In an outbox the oldest keys go first, so a vacuum frees whole pages of the index. It runs after 5,000
// removals, however large the table is. It does not give pages back, for which it would lock the table.
const postgresDDL = `-- Applications write rows here, in their transactions: INSERT (id, kind, request, body).
CREATE TABLE IF NOT EXISTS {outbox} (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id TEXT NOT NULL CHECK (char_length(id) BETWEEN 1 AND 128),
  kind TEXT NOT NULL DEFAULT 'callback',
  request TEXT NOT NULL,
  body BYTEA,
  created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, vacuum_truncate = false);
-- The relay moves rows here that the dispatcher refuses.
CREATE TABLE IF NOT EXISTS {refused} (
` + postgresCopied + `  code TEXT NOT NULL,
  problem TEXT NOT NULL,
  refused_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (id, seq)
);
CREATE INDEX IF NOT EXISTS {refusals} ON {refused} (refused_at);
`

const postgresDoneDDL = `-- The relay keeps accepted rows here for the time of the setting keep.
CREATE TABLE IF NOT EXISTS {done} (
` + postgresCopied + `  done_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (done_at, seq, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, vacuum_truncate = false);
`

// TIMESTAMP and not DATETIME: the time zones of writers may differ. MEDIUMBLOB and not TEXT: outside strict
// mode the server stores ? for characters that it does not know.
const mysqlDDL = `-- Applications write rows here, in their transactions: INSERT (id, kind, request, body).
CREATE TABLE IF NOT EXISTS {outbox} (
  seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (id <> ''),
  kind VARCHAR(16) CHARACTER SET ascii NOT NULL DEFAULT 'callback',
  request MEDIUMBLOB NOT NULL,
  body MEDIUMBLOB NULL,
  created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
) ENGINE=InnoDB;
-- The relay moves rows here that the dispatcher refuses.
CREATE TABLE IF NOT EXISTS {refused} (
` + mysqlCopied + `  code VARCHAR(64) CHARACTER SET utf8mb4 NOT NULL,
  problem TEXT CHARACTER SET utf8mb4 NOT NULL,
  refused_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id, seq),
  KEY (refused_at)
) ENGINE=InnoDB;
`

const mysqlDoneDDL = `-- The relay keeps accepted rows here for the time of the setting keep.
CREATE TABLE IF NOT EXISTS {done} (
` + mysqlCopied + `  done_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (done_at, seq, id)
) ENGINE=InnoDB;
`
