package loadtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// environment is bench's own server and everything that was created for it.
type environment struct {
	server *serverProcess
	// close calls closers in reverse order.
	closers []func(context.Context) error
}

// connectTimeout is the timeout of a connection to PostgreSQL.
const connectTimeout = 10 * time.Second

// cleanupLimit is the timeout of removing one thing.
const cleanupLimit = 30 * time.Second

// close ends the server and removes what was created for it, even if ctx has ended.
func (o *environment) close(ctx context.Context) error {
	var err error
	for _, closer := range slices.Backward(o.closers) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		err = errors.Join(err, closer(limited))
		cancel()
	}
	o.closers = nil
	return err
}

// openEnvironment creates what the plan asks for, prints that, and starts the server. After an error it
// removes everything.
func (b *bench) openEnvironment(ctx context.Context) (o *environment, err error) {
	p := b.plan
	if b.c.Lookup("DISPATCHER_SERVER") != "" {
		b.printf("DISPATCHER_SERVER is ignored; use --server for a running server")
	}
	o = &environment{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close(ctx))
		}
	}()
	dir, err := os.MkdirTemp(p.TempDir, "dispatcher-"+p.run+"-")
	if err != nil {
		return o, fmt.Errorf("create a temporary directory: %w", err)
	}
	o.closers = append(o.closers, func(context.Context) error { return os.RemoveAll(dir) })
	s, err := config.EmbeddedIn(dir)
	if err != nil {
		return o, err
	}
	s.AdminKey = config.NewAdminKey()
	s.MasterKey = []string{config.NewMasterKey()}
	// A host name in egress_allow does not allow loopback addresses.
	s.EgressAllow = append(s.EgressAllow, "::1/128", b.receiver.host())
	s.LaneConcurrency, s.Workers = p.Concurrency, max(s.Workers, p.Concurrency)
	s.DatabaseURL, s.RedisURL = p.DatabaseURL, p.RedisURL
	if err := s.Problems(); err != nil {
		return o, err
	}
	database, index := "SQLite in "+dir, "the embedded index"
	b.report.Server.Embedded, b.report.Server.Database, b.report.Server.Index = true, "sqlite", "embedded"
	if s.RedisURL != "" {
		b.report.Server.Index = "redis"
		s.RedisPrefix = "dispatcher-" + p.run
		index = "Redis with the prefix " + s.RedisPrefix
		// go-redis prints to the standard error. It also returns the errors that matter.
		logging.Disable()
		o.closers = append(o.closers, func(ctx context.Context) error {
			return s.Clean(redisq.Remove(ctx, s.RedisURL, s.RedisPrefix, 0))
		})
	}
	if s.Postgres() {
		b.report.Server.Database = "postgresql"
		schema, err := o.makeSchema(ctx, b, s)
		if err != nil {
			return o, s.Clean(err)
		}
		database = "PostgreSQL in the schema " + schema
	} else if machine.InMemory(dir) {
		b.note("%s is in memory, where accepting is faster than on a disk. Use --temp-dir to choose the "+
			"disk.", dir)
	}
	b.printf("measuring bench's own server: %s, %s; everything is removed at the end", database, index)
	o.server, err = startServer(ctx, b.c, s)
	if err != nil {
		return o, s.Clean(err)
	}
	o.closers = append(o.closers, func(context.Context) error { o.server.stop(); return nil })
	b.report.Server.URL = o.server.url
	b.cl, err = remote.New(b.c, remote.Flags{Server: o.server.url, Key: s.AdminKey,
		Project: store.DefaultProject})
	return o, err
}

// schemaPrefix starts the name of every schema that bench creates.
const schemaPrefix = "dispatcher_bench_"

// makeSchema creates a schema for the run and sets it in the settings. If the database has callbacks, it
// needs --yes: bench does not touch them, but they share the load.
func (o *environment) makeSchema(ctx context.Context, b *bench, s *config.Settings) (string, error) {
	name := schemaPrefix + strings.ReplaceAll(strings.TrimPrefix(b.plan.run, "bench-"), "-", "_")
	base := s.DatabaseURL
	quoted := pgx.Identifier{name}.Sanitize()
	err := onPostgres(ctx, base, func(conn *pgx.Conn) error {
		used, left, err := usedSchemas(ctx, conn)
		if err != nil {
			return err
		}
		if len(used) > 0 && !b.plan.Yes {
			return console.Wrong("the database has callbacks (schema %s); bench uses a new schema, %s, "+
				"drops it at the end and touches nothing else, but the load is on this database; "+
				"use --yes to continue", strings.Join(used, ", "), name)
		}
		if len(left) > 0 {
			b.note("The database has schemas of other runs of bench (%s). If these runs have ended, remove "+
				"them with DROP SCHEMA … CASCADE.", strings.Join(left, ", "))
		}
		// Register the cleanup first, so that no error leaves the schema behind.
		o.closers = append(o.closers, func(ctx context.Context) error {
			return s.Clean(dropSchema(ctx, base, quoted))
		})
		if _, err := conn.Exec(ctx, "CREATE SCHEMA "+quoted); err != nil {
			return fmt.Errorf("create a schema (the role needs GRANT CREATE ON DATABASE): %w", err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	u, err := url.Parse(base)
	if err != nil {
		return "", errors.New("the database URL is not valid")
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	s.DatabaseURL = u.String()
	return name, nil
}

// dropSchema removes a schema of bench, if it exists.
func dropSchema(ctx context.Context, url, quoted string) error {
	err := onPostgres(ctx, url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+quoted+" CASCADE")
		return err
	})
	if err != nil {
		return fmt.Errorf("drop the schema of the run (do it with DROP SCHEMA %s CASCADE): %w", quoted, err)
	}
	return nil
}

// onPostgres calls do with a new connection.
func onPostgres(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	connect, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.Connect(connect, url)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}

// usedSchemas returns the schemas in which a dispatcher has callbacks, and those of other runs of bench. A
// schema that is not readable counts as used.
func usedSchemas(ctx context.Context, conn *pgx.Conn) (used, left []string, err error) {
	rows, err := conn.Query(ctx,
		`SELECT n.nspname, has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = 'callbacks' AND c.relkind IN ('r', 'p')
			AND EXISTS (SELECT 1 FROM pg_class m
				WHERE m.relname = 'schema_migrations' AND m.relnamespace = n.oid)
		ORDER BY n.nspname`)
	if err != nil {
		return nil, nil, fmt.Errorf("search callbacks in the database: %w", err)
	}
	type schema struct {
		name     string
		readable bool
	}
	schemas, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s schema, err error) {
		err = row.Scan(&s.name, &s.readable)
		return s, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("search callbacks in the database: %w", err)
	}
	for _, s := range schemas {
		has := true
		if strings.HasPrefix(s.name, schemaPrefix) {
			left = append(left, s.name)
			continue
		}
		if s.readable {
			if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM "+
				pgx.Identifier{s.name, "callbacks"}.Sanitize()+")").Scan(&has); err != nil {
				return nil, nil, fmt.Errorf("search callbacks in the schema %s: %w", s.name, err)
			}
		}
		if has {
			used = append(used, s.name)
		}
	}
	return used, left, nil
}
