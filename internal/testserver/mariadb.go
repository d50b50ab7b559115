package testserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// mysqlVariable names an environment variable with the URL of a MySQL or MariaDB server. Tests of the dialect
// run on it too.
const mysqlVariable = "TEST_MYSQL_URL"

// mariadbPassword is the password of the user dispatcher. Tests search errors for it.
const mariadbPassword = "mariadb-secret"

// A MariaDB is a MariaDB server on 127.0.0.1. It can be ended and started again on the same port with the
// same data.
type MariaDB struct{ daemon }

// SharedMariaDB returns one server for the whole test binary. Each test must create its own database. A test
// that disturbs the server needs NewMariaDB. The server does not sync to disk. The package's TestMain must
// call [Main].
func SharedMariaDB(tb testing.TB) *MariaDB {
	tb.Helper()
	return sharedServers(tb).mariadb.get(tb, func(tb testing.TB) *MariaDB {
		return NewMariaDB(tb, "--innodb-flush-log-at-trx-commit=0")
	})
}

// NewMariaDB starts a MariaDB server that ends with the test. It syncs to disk as in production, unless the
// settings (arguments of mariadbd) change that. Its user dispatcher has all rights. The programs mariadbd and
// mariadb-install-db must be on the PATH. Otherwise the test fails.
func NewMariaDB(tb testing.TB, settings ...string) *MariaDB {
	tb.Helper()
	m := &MariaDB{}
	m.daemon = newDaemon(tb, "mariadbd", daemonDir(tb, "mariadb"), m.answers)
	m.url = &url.URL{
		Scheme: "mysql", User: url.UserPassword("dispatcher", mariadbPassword), Path: "/dispatcher",
	}
	server, install := mariadbProgram(tb, "mariadbd"), mariadbProgram(tb, "mariadb-install-db")
	// A server that starts removes the temporary tables of others from the directory /tmp.
	temporary := "--tmpdir=" + m.dir
	if out, err := m.command(install, "--no-defaults", "--datadir="+m.data(), temporary, "--skip-test-db",
		"--auth-root-authentication-method=normal", "--innodb-flush-log-at-trx-commit=0",
	).CombinedOutput(); err != nil {
		tb.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	if err := os.WriteFile(m.initFile(), []byte(`
CREATE USER IF NOT EXISTS dispatcher@'127.0.0.1' IDENTIFIED BY '`+mariadbPassword+`';
GRANT ALL ON *.* TO dispatcher@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS dispatcher;
`), 0o644); err != nil {
		tb.Fatal(err)
	}
	args := append([]string{
		"--no-defaults", "--datadir=" + m.data(), temporary, "--socket=" + filepath.Join(m.dir, "s"),
		"--bind-address=127.0.0.1", "--skip-name-resolve", "--init-file=" + m.initFile(),
		"--max-connections=400", "--innodb-buffer-pool-size=64M",
	}, settings...)
	m.launch(tb, syscall.SIGTERM, func() *exec.Cmd {
		return m.command(server, append(slices.Clone(args), "--port="+m.url.Port())...)
	})
	return m
}

func mariadbProgram(tb testing.TB, name string) string {
	tb.Helper()
	for _, dir := range []string{"", "/usr/sbin/"} { // a user's PATH may lack the second one
		if path, err := exec.LookPath(dir + name); err == nil {
			return path
		}
	}
	tb.Fatalf("this test needs %s in PATH (Debian and Ubuntu: apt-get install mariadb-server-core "+
		"mariadb-client-core); -short skips the test", name)
	return ""
}

func (m *MariaDB) data() string { return filepath.Join(m.dir, "data") }

func (m *MariaDB) initFile() string { return filepath.Join(m.dir, "init.sql") }

// Stop shuts the server down cleanly. It returns when the server has ended.
func (m *MariaDB) Stop() error { return m.end(syscall.SIGTERM) }

// Pause stops the process. Its connections stay open, but it does not answer.
func (m *MariaDB) Pause(tb testing.TB) { tb.Helper(); m.pause(tb) }

// Continue ends Pause.
func (m *MariaDB) Continue(tb testing.TB) { tb.Helper(); m.resume(tb) }

// URL returns the URL of the server's first database: mysql://user:password@127.0.0.1:PORT/dispatcher.
func (m *MariaDB) URL() string { return m.url.String() }

// Database creates an empty database and returns its URL, which is unique in this process.
func (m *MariaDB) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := m.Exec(tb.Context(), "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("create database: %v", err)
	}
	return m.at(name)
}

// Exec runs a statement in the first database.
func (m *MariaDB) Exec(ctx context.Context, statement string) error {
	db, err := openDatabase(m.URL())
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// answers returns nil if this server answers. It checks the data directory, because another server may listen
// on the port.
func (m *MariaDB) answers(ctx context.Context) error {
	db, err := openDatabase(m.URL())
	if err != nil {
		return err
	}
	defer db.Close()
	var data string
	if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&data); err != nil {
		return err
	}
	if filepath.Clean(data) != m.data() {
		return fmt.Errorf("another server answers, with the data directory %s", data)
	}
	return nil
}

// MySQLDatabase creates an empty database on the server of TEST_MYSQL_URL and returns its URL. The database
// is dropped with the test. Without that variable the test fails.
func MySQLDatabase(tb testing.TB) string {
	tb.Helper()
	server := os.Getenv(mysqlVariable)
	if server == "" {
		tb.Fatalf("%s is not set", mysqlVariable)
	}
	u, err := url.Parse(server)
	if err != nil {
		tb.Fatalf("%s is not a URL", mysqlVariable) // the error would show its password
	}
	db := DB(tb, server)
	name := fmt.Sprintf("dispatcher_test_%d_%d", os.Getpid(), databases.Add(1))
	if _, err := db.ExecContext(tb.Context(), "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("create database: %v", err)
	}
	tb.Cleanup(func() {
		if _, err := db.Exec("DROP DATABASE " + name); err != nil {
			tb.Errorf("drop database: %v", err)
		}
	})
	u.Path = "/" + name
	return u.String()
}

// DB opens a database by its URL, one of PostgreSQL or of MySQL. It is closed with the test. On MySQL a
// statement may be several, separated by semicolons, if it has no arguments.
func DB(tb testing.TB, address string) *sql.DB {
	tb.Helper()
	db, err := openDatabase(address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("close the database: %v", err)
		}
	})
	return db
}

func openDatabase(address string) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "mysql" {
		return sql.Open("pgx", address)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.DBName = u.Path[min(1, len(u.Path)):]
	c.MultiStatements, c.ParseTime, c.Logger = true, true, &mysql.NopLogger{}
	if err := c.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
