package source_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A fault is a change of a database that a check must find.
type fault struct {
	postgres, mysql string // statements; empty: not on this database
	level           source.Level
	// text and cure are parts of the only finding of this level.
	text, cure string
}

var faults = []fault{
	{"DROP TABLE dispatcher_outbox_done", "DROP TABLE dispatcher_outbox_done", source.LevelError,
		"table dispatcher_outbox_done does not exist, or the user relay has no right on it", "--keep"},
	{"DROP TABLE dispatcher_outbox; CREATE VIEW dispatcher_outbox AS SELECT * FROM dispatcher_outbox_refused",
		"DROP TABLE dispatcher_outbox; CREATE VIEW dispatcher_outbox AS SELECT * FROM " +
			"dispatcher_outbox_refused; GRANT SELECT ON dispatcher_outbox TO relay@'%'", source.LevelError,
		"dispatcher_outbox is not a table", "dispatcher relay ddl --dialect"},
	{"ALTER TABLE dispatcher_outbox DROP COLUMN body", "ALTER TABLE dispatcher_outbox DROP COLUMN body",
		source.LevelError, "table dispatcher_outbox has no column body", "dispatcher relay ddl"},
	{"ALTER TABLE dispatcher_outbox ALTER COLUMN request TYPE jsonb USING request::jsonb",
		"ALTER TABLE dispatcher_outbox MODIFY created_at DATETIME(3) NOT NULL DEFAULT NOW(3)",
		source.LevelError, " of table dispatcher_outbox has the type ", "change it to t"},
	{"", "ALTER TABLE dispatcher_outbox MODIFY request MEDIUMTEXT NOT NULL", source.LevelWarning,
		"outside strict mode the server stores ?", "change it to mediumblob"},
	{"ALTER TABLE dispatcher_outbox_refused DROP CONSTRAINT dispatcher_outbox_refused_pkey",
		"ALTER TABLE dispatcher_outbox_refused DROP PRIMARY KEY", source.LevelError,
		"the primary key of table dispatcher_outbox_refused is ()", "make it (id, seq)"},
	{"REVOKE DELETE ON dispatcher_outbox FROM relay",
		"REVOKE DELETE ON dispatcher_outbox FROM relay@'%'", source.LevelError,
		"the user relay has no right to DELETE on table dispatcher_outbox", "GRANT DELETE ON "},
	{"REVOKE INSERT, UPDATE ON dispatcher_outbox_refused FROM relay",
		"REVOKE INSERT, UPDATE ON dispatcher_outbox_refused FROM relay@'%'", source.LevelError,
		"no right to INSERT, UPDATE on table dispatcher_outbox_refused", "GRANT INSERT, UPDATE ON "},
	{"REVOKE ALL ON dispatcher_outbox FROM relay", "", source.LevelError,
		"no right to SELECT, DELETE on table dispatcher_outbox", "GRANT SELECT, DELETE ON "},
	{"", "REVOKE ALL ON dispatcher_outbox FROM relay@'%'", source.LevelError,
		"table dispatcher_outbox does not exist, or the user relay has no right on it",
		"dispatcher relay ddl"},
	{"", "ALTER TABLE dispatcher_outbox ENGINE = MyISAM", source.LevelError,
		"the engine MyISAM, which knows no transactions", "ENGINE = InnoDB"},
	{"ALTER TABLE dispatcher_outbox SET UNLOGGED", "", source.LevelError,
		"table dispatcher_outbox is not logged", "SET LOGGED"},
	{"ALTER TABLE dispatcher_outbox ENABLE ROW LEVEL SECURITY", "", source.LevelError,
		"row-level security is active on table dispatcher_outbox", "BYPASSRLS"},
	{"ALTER TABLE dispatcher_outbox ALTER COLUMN seq SET CACHE 50", "", source.LevelWarning,
		"caches 50 numbers in a session", "CACHE 1"},
	{"SELECT set_database('default_transaction_read_only', 'on')", "", source.LevelError,
		"the session is read-only", "default_transaction_read_only"},
	{"SELECT set_database('default_transaction_isolation', 'serializable')", "", source.LevelError,
		"transactions are serializable", "default_transaction_isolation"},
}

// setDatabase is a function that changes a setting of the database.
const setDatabase = `CREATE OR REPLACE FUNCTION set_database(name text, setting text) RETURNS void
	LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('ALTER DATABASE %I SET %I = %L', current_database(), name,
	setting); END $$`

// TestFaults checks that each fault is found, that it keeps Connect from reading if it is an error, and that
// nothing is found without one.
func TestFaults(t *testing.T) {
	directly(t, func(t *testing.T, s server) {
		sound := newWorld(t, s)
		findings, err := sound.open(source.Options{Keep: true}).Check(t.Context())
		if err != nil || len(notDurable(findings)) != 0 {
			t.Errorf("sound tables: %+v, %v", findings, err)
		}
		for _, f := range faults {
			if statements := sound.sql(f.postgres, f.mysql); statements != "" {
				t.Run(f.text, func(t *testing.T) {
					w := newWorld(t, s)
					if s.dialect == source.Postgres {
						w.exec(setDatabase)
					}
					w.exec(statements)
					mustFind(t, w.open(source.Options{Keep: true}), f)
				})
			}
		}
	})
}

// mustFind checks that a fault is the only finding.
func mustFind(t *testing.T, s *source.Source, f fault) {
	t.Helper()
	findings, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	findings = notDurable(findings)
	if len(findings) != 1 || findings[0].Level != f.level || !strings.Contains(findings[0].Text, f.text) ||
		!strings.Contains(findings[0].Cure, f.cure) {
		t.Errorf("found %+v, want %s %q with %q", findings, f.level, f.text, f.cure)
	}
	c, err := s.Connect(t.Context())
	if err == nil {
		c.Close()
	}
	failed, ok := errors.AsType[*source.CheckError](err)
	if ok != (f.level == source.LevelError) || ok && !strings.Contains(failed.Error(), f.text) {
		t.Errorf("connect: %v", err)
	}
}

// notDurable leaves out warnings about the settings that make test servers fast.
func notDurable(findings []source.Finding) (left []source.Finding) {
	for _, f := range findings {
		if !strings.Contains(f.Text, "a crash of the server may undo") {
			left = append(left, f)
		}
	}
	return left
}

// ownMariaDB starts a server of this test alone, with arguments of mariadbd.
func ownMariaDB(t *testing.T, args ...string) server {
	m := testserver.NewMariaDB(t, args...)
	return server{"own", source.MySQL, func(t *testing.T) (string, string) {
		url := m.Database(t)
		return url, url
	}, true}
}

// TestServerSettings checks what is the same for all databases of a server.
func TestServerSettings(t *testing.T) {
	needsServers(t)
	t.Parallel()
	w := newWorld(t, ownMariaDB(t, "--log-bin", "--binlog-format=STATEMENT",
		"--transaction-isolation=READ-UNCOMMITTED"))
	w.app.SetMaxIdleConns(0) // a session keeps the settings of its start
	s := w.open(source.Options{Keep: true})
	mustFind(t, s, fault{level: source.LevelError, text: "binlog_format is STATEMENT", cure: "'ROW'"})
	w.exec("SET GLOBAL binlog_format = 'MIXED', GLOBAL read_only = ON")
	mustFind(t, s, fault{level: source.LevelError, text: "read_only is ON", cure: "primary"})
	w.exec("SET GLOBAL read_only = OFF")

	// The default of this server would read what is not committed.
	c := w.connect(source.Options{Keep: true})
	w.insert("a")
	tx := w.begin()
	w.in(tx, w.insertion(), "open", "{}", nil)
	w.remains(c, "a")
	w.changed(c.Remove(t.Context(), keysOf(w.read(c, 0))))(1)

	if err := c.Writable(t.Context()); err != nil {
		t.Errorf("the primary: %v", err)
	}

	// The server becomes a replica.
	w.exec("SET GLOBAL read_only = ON")
	mustBeReadOnly(t, c.Writable(t.Context()))
	if _, err := c.Remove(t.Context(), []source.Key{{Seq: 1, ID: "a"}}); !errors.Is(err, source.ErrBroken) {
		t.Errorf("remove on a read-only server: %v, want ErrBroken", err)
	}
}

// mustBeReadOnly checks an error of Writable.
func mustBeReadOnly(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*source.CheckError](err); !ok || !errors.Is(err, source.ErrBroken) ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("a read-only server: %v, want ErrBroken and the finding", err)
	}
}

// TestPostgresBecomesReadOnly checks a session that is open when the server becomes read-only.
func TestPostgresBecomesReadOnly(t *testing.T) {
	needsServers(t)
	t.Parallel()
	p := testserver.NewPostgres(t)
	w := newWorld(t, server{"own", source.Postgres, func(t *testing.T) (string, string) {
		url := p.Database(t)
		return url, url
	}, true})
	c := w.connect(source.Options{})
	if err := c.Writable(t.Context()); err != nil {
		t.Errorf("the primary: %v", err)
	}
	for _, statement := range []string{
		"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()",
	} {
		if err := p.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	testserver.Until(t, "the server to be read-only", func() bool {
		err = c.Writable(t.Context())
		return err != nil
	})
	mustBeReadOnly(t, err)
}
