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

// An ownPlace is a server that bench started for itself, with everything that was made for it.
type ownPlace struct {
	server *ownServer
	// closers run in reverse.
	closers []func(context.Context) error
}

// connectTimeout is how long connecting to PostgreSQL may take.
const connectTimeout = 10 * time.Second

// placeEnd is how long removing one thing may take.
const placeEnd = 30 * time.Second

// close ends the server and removes what was made for it, whatever has become of ctx.
func (o *ownPlace) close(ctx context.Context) error {
	var err error
	for _, closer := range slices.Backward(o.closers) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), placeEnd)
		err = errors.Join(err, closer(limited))
		cancel()
	}
	o.closers = nil
	return err
}

// openOwnPlace makes what the plan asks for, says so, and starts the server. Its error leaves nothing behind.
func (b *bench) openOwnPlace(ctx context.Context) (o *ownPlace, err error) {
	p := b.plan
	if b.c.Lookup("DISPATCHER_SERVER") != "" {
		b.say("DISPATCHER_SERVER does not count here: --server names a running server")
	}
	o = &ownPlace{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close(ctx))
		}
	}()
	dir, err := os.MkdirTemp(p.TempDir, "dispatcher-"+p.run+"-")
	if err != nil {
		return o, fmt.Errorf("make a temporary directory: %w", err)
	}
	o.closers = append(o.closers, func(context.Context) error { return os.RemoveAll(dir) })
	s, err := config.EmbeddedIn(dir)
	if err != nil {
		return o, err
	}
	s.AdminKey = config.NewAdminKey()
	s.MasterKey = []string{config.NewMasterKey()}
	// The receiver's name alone would not lead to this machine.
	s.EgressAllow = append(s.EgressAllow, "::1/128", b.receiver.host())
	s.LaneConcurrency, s.Workers = p.Concurrency, max(s.Workers, p.Concurrency)
	s.DatabaseURL, s.RedisURL = p.DatabaseURL, p.RedisURL
	if err := s.Problems(); err != nil {
		return o, err
	}
	database, index := "SQLite in "+dir, "the index in its process"
	b.report.Server.Embedded, b.report.Server.Database, b.report.Server.Index = true, "sqlite", "embedded"
	if s.RedisURL != "" {
		b.report.Server.Index = "redis"
		s.RedisPrefix = "dispatcher-" + p.run
		index = "Redis under the prefix " + s.RedisPrefix
		// The client library writes to the standard error by itself; what matters comes back as an error as
		// well.
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
		b.note("%s is in memory: on a disk accepting takes longer. --temp-dir names a directory on the "+
			"disk that matters.", dir)
	}
	b.say("a server of its own is measured: %s, %s; all of it is removed at the end", database, index)
	o.server, err = startOwnServer(ctx, b.c, s)
	if err != nil {
		return o, s.Clean(err)
	}
	o.closers = append(o.closers, func(context.Context) error { o.server.stop(); return nil })
	b.report.Server.URL = o.server.url
	b.cl, err = remote.New(b.c, remote.Flags{Server: o.server.url, Key: s.AdminKey,
		Project: store.DefaultProject})
	return o, err
}

// schemaPrefix begins the name of every schema that bench makes.
const schemaPrefix = "dispatcher_bench_"

// makeSchema makes a schema for the run and has the settings use it. A database with callbacks of its own is
// refused without the plan's consent: nothing of it is touched, but it bears the load.
func (o *ownPlace) makeSchema(ctx context.Context, b *bench, s *config.Settings) (string, error) {
	name := schemaPrefix + strings.ReplaceAll(strings.TrimPrefix(b.plan.run, "bench-"), "-", "_")
	base := s.DatabaseURL
	quoted := pgx.Identifier{name}.Sanitize()
	err := onPostgres(ctx, base, func(conn *pgx.Conn) error {
		used, left, err := usedSchemas(ctx, conn)
		if err != nil {
			return err
		}
		if len(used) > 0 && !b.plan.Yes {
			return console.Wrong("the database has callbacks of its own (schema %s). bench would work in a "+
				"schema of its own, %s, which it drops at the end, "+
				"and touch nothing else; but its load would be this database's. Give --yes if that is meant",
				strings.Join(used, ", "), name)
		}
		if len(left) > 0 {
			b.note("The database has schemas of other runs of bench (%s): unless those still run, DROP "+
				"SCHEMA … CASCADE removes them.", strings.Join(left, ", "))
		}
		// Before it is there: whatever ends the statement, nothing stays.
		o.closers = append(o.closers, func(ctx context.Context) error {
			return s.Clean(dropSchema(ctx, base, quoted))
		})
		if _, err := conn.Exec(ctx, "CREATE SCHEMA "+quoted); err != nil {
			return fmt.Errorf("make a schema in the database (the role needs the right: GRANT CREATE ON "+
				"DATABASE): %w", err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	u, err := url.Parse(base)
	if err != nil {
		return "", errors.New("the address of the database cannot be read")
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	s.DatabaseURL = u.String()
	return name, nil
}

// dropSchema removes a schema of bench's own, if it is there.
func dropSchema(ctx context.Context, url, quoted string) error {
	err := onPostgres(ctx, url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+quoted+" CASCADE")
		return err
	})
	if err != nil {
		return fmt.Errorf("the schema of the run could not be removed (DROP SCHEMA %s CASCADE does it): %w",
			quoted, err)
	}
	return nil
}

// onPostgres does something on a connection of its own.
func onPostgres(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	connect, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.Connect(connect, url)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}

// usedSchemas returns the schemas in which a dispatcher has callbacks, and those that other runs of bench
// made. One that may not be read counts as used.
func usedSchemas(ctx context.Context, conn *pgx.Conn) (used, left []string, err error) {
	rows,
		err := conn.Query(ctx,
		`SELECT n.nspname, has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relname = 'callbacks' AND c.relkind IN ('r', 'p')
			AND EXISTS (SELECT 1 FROM pg_class m WHERE m.relname = 'schema_migrations' AND m.relnamespace = n.oid)
		ORDER BY n.nspname`)
	if err != nil {
		return nil, nil, fmt.Errorf("look for callbacks in the database: %w", err)
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
		return nil, nil, fmt.Errorf("look for callbacks in the database: %w", err)
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
				return nil, nil, fmt.Errorf("look for callbacks in the schema %s: %w", s.name, err)
			}
		}
		if has {
			used = append(used, s.name)
		}
	}
	return used, left, nil
}
