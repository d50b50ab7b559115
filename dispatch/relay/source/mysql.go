package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// openMySQL parses the DSN.
func (s *Source) openMySQL(o Options) error {
	u, err := url.Parse(o.DSN)
	if err != nil {
		// The text of the error has the password.
		return errors.New("the DSN is not a URL: in a user or password, characters such as @ and / must be " +
			"percent-encoded")
	}
	if u.Hostname() == "" || u.User.Username() == "" {
		return errors.New("the DSN has no host or no user: write mysql://user@host/database")
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	s.address, s.database = net.JoinHostPort(u.Hostname(), port), strings.TrimPrefix(u.Path, "/")
	s.user = u.User.Username()

	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", s.address, s.database, s.user
	c.Passwd, _ = u.User.Password()
	if o.Password != "" {
		c.Passwd = o.Password
	}
	if err := setTLS(c, u.Query()); err != nil {
		return err
	}
	// One message a statement. The driver refuses to do this in the encodings where it is not safe.
	c.InterpolateParams = true
	c.ClientFoundRows = true
	// Contexts bound the calls. One that ends closes the connection.
	c.Timeout, c.ReadTimeout, c.WriteTimeout = dialTimeout, s.limits.patient, queryTimeout
	c.DialFunc = s.limits.dialer().DialContext
	c.Logger = &mysql.NopLogger{}
	if err := c.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	s.dial = func(ctx context.Context) (session, error) { return dialMySQL(ctx, connector, s.limits.idle) }
	return nil
}

// setTLS reads the parameters of the DSN.
func setTLS(c *mysql.Config, parameters url.Values) error {
	mode, file := parameters.Get("tls"), parameters.Get("tls_ca")
	parameters.Del("tls")
	parameters.Del("tls_ca")
	if len(parameters) > 0 {
		return errors.New("the DSN has parameters other than tls and tls_ca")
	}
	switch mode {
	case "", "false", "true", "skip-verify", "preferred":
		c.TLSConfig = mode
	default:
		return errors.New("tls in the DSN is not true, false, skip-verify or preferred")
	}
	if file == "" {
		return nil
	}
	if mode != "true" {
		return errors.New("tls_ca in the DSN needs tls=true")
	}
	certificates, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("tls_ca in the DSN: %w", err)
	}
	c.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	if !c.TLS.RootCAs.AppendCertsFromPEM(certificates) {
		return fmt.Errorf("tls_ca in the DSN: %s has no certificates", file)
	}
	return nil
}

// A mysqlSession is one connection. Its settings are those of the session.
type mysqlSession struct {
	pool *sql.DB
	conn *sql.Conn
}

// mysqlSettings are the settings of a session. READ COMMITTED: under REPEATABLE READ a DELETE of a missing
// row locks a gap, and INSERTs wait for it; under READ UNCOMMITTED rows of transactions that roll back would
// be read. lock_wait_timeout is that of tables. sql_safe_updates would refuse a DELETE with a join. With a
// low div_precision_increment, places of kept rows would be rounded. With completion_type, a COMMIT could
// begin the next transaction.
func mysqlSettings(idle time.Duration) []string {
	return []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		fmt.Sprintf("SET SESSION autocommit = 1, time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES', "+
			"innodb_lock_wait_timeout = %[1]d, lock_wait_timeout = %[1]d, wait_timeout = %[2]d, "+
			"sql_safe_updates = 0, div_precision_increment = 6, completion_type = 0",
			int(lockTimeout.Seconds()), int(idle.Seconds())),
	}
}

func dialMySQL(ctx context.Context, connector driver.Connector, idle time.Duration) (session, error) {
	m := &mysqlSession{pool: sql.OpenDB(connector)}
	m.pool.SetMaxOpenConns(1)
	var err error
	m.conn, err = m.pool.Conn(ctx)
	for _, set := range mysqlSettings(idle) {
		if err != nil {
			return nil, errors.Join(err, m.pool.Close())
		}
		_, err = m.conn.ExecContext(ctx, set)
	}
	if err != nil {
		return nil, errors.Join(err, m.pool.Close())
	}
	return m, nil
}

func (m *mysqlSession) read(ctx context.Context, s statement, each func(columns)) error {
	rows, err := m.conn.QueryContext(ctx, s.sql, s.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	raw, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
	values := make([][]byte, len(names))
	for i := range raw {
		into[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i := range raw {
			values[i] = raw[i]
		}
		each(columns{values, mysqlNumber})
	}
	return errors.Join(rows.Err(), rows.Close())
}

// mysqlNumber parses a number.
func mysqlNumber(b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0 // the columns are numbers
	}
	return n
}

func (m *mysqlSession) change(ctx context.Context, statements ...statement) (int, error) {
	if len(statements) == 1 {
		return m.exec(ctx, statements[0])
	}
	// No context would bound the Commit of a sql.Tx.
	if _, err := m.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return 0, err
	}
	n := 0
	for _, s := range append(slices.Clip(statements), statement{sql: "COMMIT"}) {
		changed, err := m.exec(ctx, s)
		n += changed
		if err != nil {
			m.rollBack(ctx)
			return 0, err
		}
	}
	return n, nil
}

// rollBack ends the transaction of a change that failed, perhaps because its context ended.
func (m *mysqlSession) rollBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	// If it fails, so does the connection, and the server rolls back.
	_, _ = m.conn.ExecContext(ctx, "ROLLBACK")
}

func (m *mysqlSession) exec(ctx context.Context, s statement) (int, error) {
	result, err := m.conn.ExecContext(ctx, s.sql, s.args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if !s.counted {
		n = 0
	}
	return int(n), err
}

func (m *mysqlSession) kind(err error) error {
	server, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return ErrBroken // the driver closes the connection after every error of its own
	}
	switch server.Number {
	case 1290, 1792, 1836: // read-only; another server may have become the primary
		return ErrBroken
	case 1053, 1077, 1927, 3169, 4031: // shutdown, killed, idle
		return ErrBroken
	}
	return nil
}

func (m *mysqlSession) close(context.Context) {
	// A broken connection is closed already.
	_ = m.conn.Close()
	_ = m.pool.Close()
}
