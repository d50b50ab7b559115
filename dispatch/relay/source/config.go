package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

const (
	// dialTimeout bounds opening a connection, queryTimeout each call of a Conn.
	dialTimeout  = 5 * time.Second
	queryTimeout = 30 * time.Second
	// patientTimeout bounds a patient Read. While a snapshot is held in the database, dead rows stay: a
	// server may have to pass millions of them to the next row.
	patientTimeout = 10 * time.Minute
	// silenceTimeout bounds how long an unreachable server remains unnoticed.
	silenceTimeout = 30 * time.Second
	// lockTimeout bounds the wait for a lock of another session.
	lockTimeout = 2 * time.Second
	// idleTimeout is when a MySQL server ends the session of a relay that sends nothing. A removal takes
	// several statements there, so a relay that is frozen in the middle would keep the locks of its rows, and
	// stop the relay that takes over. An idle relay sends a statement a minute at least.
	idleTimeout = 2 * time.Minute
)

// Options are the options of a Source.
type Options struct {
	// DSN is a URL with the scheme postgres, postgresql, mysql or mariadb. Those of PostgreSQL have the
	// parameters of libpq. Those of MySQL have tls (true, false, skip-verify or preferred) and tls_ca, a file
	// with certificates.
	DSN string
	// Password replaces that of the DSN unless it is empty.
	Password string
	// Table may have a schema or database before a dot. Empty: DefaultTable.
	Table string
	// Keep copies removed rows to the table with the suffix _done.
	Keep bool
}

// A Source is an outbox table. It has no connection.
type Source struct {
	dialect Dialect
	tables  tables
	keep    bool
	limits  limits

	// address is HOST:PORT, with commas if there are several.
	address, database string
	user              string
	dial              func(context.Context) (session, error)
}

// limits bound calls of a Conn (a patient Read, and each other call), the silence of a server, and that of a
// relay.
type limits struct{ patient, call, silence, idle time.Duration }

var defaultLimits = limits{
	patient: patientTimeout, call: queryTimeout, silence: silenceTimeout, idle: idleTimeout,
}

// Open checks the options. It does not connect. Errors have no part of the DSN.
func Open(o Options) (*Source, error) { return open(o, defaultLimits) }

func open(o Options, l limits) (*Source, error) {
	scheme, _, isURL := strings.Cut(o.DSN, "://")
	s := &Source{keep: o.Keep, limits: l}
	var err error
	switch {
	case !isURL:
		return nil, errors.New("the DSN is not a URL such as postgres://user@host/database")
	case scheme == "postgres" || scheme == "postgresql":
		s.dialect = Postgres
		err = s.openPostgres(o)
	case scheme == "mysql" || scheme == "mariadb":
		s.dialect = MySQL
		err = s.openMySQL(o)
	default:
		return nil, errors.New("the scheme of the DSN is not postgres or mysql")
	}
	if err != nil {
		return nil, err
	}
	// With such a character that is not percent-encoded, parts of the password would be in other fields.
	if !plainDatabase.MatchString(s.database) || strings.ContainsAny(s.address, "@/?#") {
		return nil, errors.New("the DSN has no plain database name after the host; in a user or password, " +
			"characters such as @ and / must be percent-encoded")
	}
	s.tables, err = tablesOf(s.dialect, o.Table)
	return s, err
}

var plainDatabase = regexp.MustCompile(`^[A-Za-z0-9_$.-]{1,64}$`)

// Dialect returns the dialect of the DSN.
func (s *Source) Dialect() Dialect { return s.dialect }

// Origin returns HOST:PORT/DATABASE/TABLE.
func (s *Source) Origin() string { return s.address + "/" + s.database + "/" + s.tables.name }

// tables are the quoted names of the tables of a source. name is the outbox table as configured.
type tables struct{ name, outbox, refused, done string }

// The suffixes must fit into the 63 bytes of a name in PostgreSQL.
var plainTable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,53}$`)

// tablesOf quotes the names of tables.
func tablesOf(d Dialect, table string) (tables, error) {
	table = cmp.Or(table, DefaultTable)
	if !plainTable.MatchString(table) {
		return tables{}, fmt.Errorf("table %.80q is not a plain name: letters, digits and _, at most 54 "+
			"characters, and a schema with a dot before it", table)
	}
	return tables{table, d.quote(table), d.quote(table + "_refused"), d.quote(table + "_done")}, nil
}

// quote quotes a plain name, with or without a schema.
func (d Dialect) quote(name string) string {
	mark := `"`
	if d == MySQL {
		mark = "`"
	}
	return mark + strings.ReplaceAll(name, ".", mark+"."+mark) + mark
}

// Connect opens a connection and runs the checks. If one finds an error, Connect fails with a CheckError.
func (s *Source) Connect(ctx context.Context) (*Conn, error) {
	db, findings, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	if failed(findings) {
		db.close(ctx)
		return nil, &CheckError{findings}
	}
	return newConn(s, db), nil
}

// Check opens a connection, runs the checks and closes it. The error says why there is no connection.
func (s *Source) Check(ctx context.Context) ([]Finding, error) {
	db, findings, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	db.close(ctx)
	return findings, nil
}

// connect opens a session and runs the checks.
func (s *Source) connect(ctx context.Context) (session, []Finding, error) {
	dialCtx, cancel := context.WithTimeout(ctx, 2*dialTimeout) // the dial, and the log-in
	defer cancel()
	db, err := s.dial(dialCtx)
	if err != nil {
		return nil, nil, &opError{op: "connect", err: err}
	}
	ctx, cancelCheck := context.WithTimeout(ctx, queryTimeout)
	defer cancelCheck()
	findings, err := s.check(ctx, db)
	if err != nil {
		defer db.close(ctx)
		return nil, nil, &opError{"check", db.kind(err), err}
	}
	return db, findings, nil
}
