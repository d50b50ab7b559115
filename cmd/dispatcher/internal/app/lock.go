package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
)

// LockFileName is the file in the data directory that the owner of the embedded index locks.
const LockFileName = "dispatcher.lock"

// errIndexTaken is the error of a second process with the embedded index.
var errIndexTaken = errors.New("another dispatcher runs with the embedded index on this database; " +
	"set redis_url to run several processes")

// indexLock is the proof that this process alone owns the embedded index. The zero value locks nothing.
type indexLock struct {
	files    []io.Closer
	postgres *postgresLock
}

// acquireIndexLock locks nothing with Redis, an advisory lock with PostgreSQL, and files with SQLite. Its
// error is errIndexTaken if another process is the owner.
func acquireIndexLock(ctx context.Context, s *config.Settings, log *slog.Logger) (*indexLock, error) {
	l := &indexLock{}
	if !s.Embedded() {
		return l, nil
	}
	if s.Postgres() {
		p := &postgresLock{url: s.DatabaseURL, log: log}
		if err := p.acquire(ctx); err != nil {
			return nil, err
		}
		l.postgres = p
		return l, nil
	}
	paths := []string{filepath.Join(s.DataDir, LockFileName)}
	if path, ok := strings.CutPrefix(s.DatabaseURL, "sqlite:"); ok {
		// The database is outside the data directory: two data directories must not share it.
		paths = append(paths, path+".lock")
	}
	for _, path := range paths {
		f, err := machine.LockFile(path)
		if err != nil {
			l.release()
			if errors.Is(err, machine.ErrLocked) {
				return nil, errIndexTaken
			}
			return nil, fmt.Errorf("lock the embedded index: %w", err)
		}
		l.files = append(l.files, f)
	}
	return l, nil
}

// run watches the lock until ctx ends. It fails if another process got the lock.
func (l *indexLock) run(ctx context.Context) error {
	if l.postgres == nil {
		<-ctx.Done()
		return nil
	}
	return l.postgres.run(ctx)
}

// release unlocks. It does not delete the files: otherwise two processes could lock two files with the same
// name.
func (l *indexLock) release() {
	for _, f := range l.files {
		f.Close()
	}
	if l.postgres != nil {
		l.postgres.close()
	}
}

// postgresLock is an advisory lock of a session on its own connection. PostgreSQL releases the lock when the
// connection breaks. run then acquires it again, unless another process was faster.
type postgresLock struct {
	url  string
	log  *slog.Logger
	conn *pgx.Conn
}

// postgresLockClass is the first half of the lock's key. The schema is the second half, so that dispatchers
// in two schemas of a database do not exclude each other.
const postgresLockClass = 0x64697370

// lockCheck is the interval of checks of the lock, and lockTimeout limits one statement. lockRetry is how
// long acquire retries a lock that is taken, because PostgreSQL takes a moment to notice that the process of
// a session was killed. lockPause is the time between two tries.
const (
	lockCheck   = 5 * time.Second
	lockTimeout = 10 * time.Second
	lockRetry   = 2 * time.Second
	lockPause   = 100 * time.Millisecond
)

// acquire connects and takes the lock. It retries for lockRetry while another session has it.
func (p *postgresLock) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout,
		errors.New("the database did not respond in time"))
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return fmt.Errorf("cannot connect to PostgreSQL; start it or correct the setting database_url: %w",
			err)
	}
	deadline := time.Now().Add(lockRetry)
	err = tryLock(ctx, conn)
	for errors.Is(err, errIndexTaken) && time.Now().Before(deadline) {
		console.Pause(ctx, lockPause)
		err = tryLock(ctx, conn)
	}
	if err != nil {
		closeErr := conn.Close(context.WithoutCancel(ctx))
		if errors.Is(err, errIndexTaken) {
			return err
		}
		return fmt.Errorf("acquire the lock of the embedded index: %w", errors.Join(err, closeErr))
	}
	p.conn = conn
	return nil
}

// tryLock acquires the lock for the connection, or returns errIndexTaken.
func tryLock(ctx context.Context, conn *pgx.Conn) error {
	var taken bool
	err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, hashtext(coalesce(current_schema(), '')))`,
		int32(postgresLockClass)).Scan(&taken)
	if err == nil && !taken {
		err = errIndexTaken
	}
	return err
}

// run checks the connection every lockCheck. If it broke, run acquires the lock again; it fails with
// errIndexTaken if another process was faster, which ends this process.
func (p *postgresLock) run(ctx context.Context) error {
	tick := time.NewTicker(lockCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if p.alive(ctx) {
			continue
		}
		// Two owners cannot commit each other's results: the fence in SQL prevents that. This ends the second
		// owner.
		switch err := p.acquire(ctx); {
		case err == nil:
			p.log.Warn("connection of the index lock was lost, lock acquired again")
		case errors.Is(err, errIndexTaken):
			return err
		case ctx.Err() == nil:
			p.log.Warn("index lock is lost until the database is reachable", "error", err)
		}
	}
}

// alive reports whether the connection, and with it the lock, still exists. It closes a dead connection.
func (p *postgresLock) alive(ctx context.Context) bool {
	if p.conn == nil {
		return false
	}
	ping, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	err := p.conn.Ping(ping)
	if err == nil || ctx.Err() != nil {
		return true
	}
	p.close()
	return false
}

func (p *postgresLock) close() {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if err := p.conn.Close(ctx); err != nil {
		p.log.Debug("close the connection of the index lock", "error", err)
	}
	p.conn = nil
}
