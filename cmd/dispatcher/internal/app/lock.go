package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
)

// LockFileName is the file in the data directory that the owner of the embedded index holds.
const LockFileName = "dispatcher.lock"

// errIndexTaken is the one line that a second owner of an embedded index gets.
var errIndexTaken = errors.New("another dispatcher runs with the embedded index on this database; more " +
	"processes need redis_url")

// An indexLock says that this process alone owns the embedded index. The zero value is a lock on nothing.
type indexLock struct {
	files    []*os.File
	postgres *postgresLock
}

// acquireIndexLock takes what the settings ask for: nothing with Redis, an advisory lock with PostgreSQL,
// files with SQLite. Its error is errIndexTaken if another process is the owner.
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
		// The database is elsewhere: two data directories must not share it.
		paths = append(paths, path+".lock")
	}
	for _, path := range paths {
		f, err := machine.LockFile(path)
		if err != nil {
			l.release()
			if errors.Is(err, machine.ErrLocked) {
				err = errIndexTaken
			}
			return nil, err
		}
		l.files = append(l.files, f)
	}
	return l, nil
}

// run watches the lock until ctx ends; its error is that the lock was lost to another process.
func (l *indexLock) run(ctx context.Context) error {
	if l.postgres == nil {
		<-ctx.Done()
		return nil
	}
	return l.postgres.run(ctx)
}

// release gives the lock up. The files stay: removing them would let two processes lock two files of one
// name.
func (l *indexLock) release() {
	for _, f := range l.files {
		f.Close()
	}
	if l.postgres != nil {
		l.postgres.close()
	}
}

// A postgresLock is a session's advisory lock on a connection of its own. It is lost with the connection;
// then it is taken again, unless another process was faster.
type postgresLock struct {
	url  string
	log  *slog.Logger
	conn *pgx.Conn
}

// postgresLockClass is the first half of the advisory lock's key; the schema is the second, so that
// dispatchers in two schemas of one database do not exclude each other.
const postgresLockClass = 0x64697370

// How often a held lock is looked after, how long one statement may take, and how long a lock that is taken
// is asked for again: the session of a process that was killed a moment ago lives until the server has
// noticed.
const (
	lockCheck    = 5 * time.Second
	lockTimeout  = 10 * time.Second
	lockPatience = 2 * time.Second
	lockPause    = 100 * time.Millisecond
)

func (p *postgresLock) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout,
		errors.New("the database did not answer in time"))
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return fmt.Errorf("connect for the lock of the embedded index: %w", err)
	}
	err = tryLock(ctx, conn)
	for deadline := time.Now().Add(lockPatience); errors.Is(err, errIndexTaken) &&
		time.Now().Before(deadline); err = tryLock(ctx, conn) {
		console.Pause(ctx, lockPause)
	}
	if err != nil {
		closeErr := conn.Close(context.WithoutCancel(ctx))
		if errors.Is(err, errIndexTaken) {
			return err
		}
		return fmt.Errorf("take the lock of the embedded index: %w", errors.Join(err, closeErr))
	}
	p.conn = conn
	return nil
}

// tryLock takes the lock for the connection, or says that another one has it.
func tryLock(ctx context.Context, conn *pgx.Conn) error {
	var taken bool
	err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, hashtext(coalesce(current_schema(), '')))`,
		int32(postgresLockClass)).Scan(&taken)
	if err == nil && !taken {
		err = errIndexTaken
	}
	return err
}

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
		// The fence in SQL keeps two owners from committing each other's results; this ends the second one.
		switch err := p.acquire(ctx); {
		case err == nil:
			p.log.Warn("lock of the embedded index was lost with its connection and is held again")
		case errors.Is(err, errIndexTaken):
			return err
		case ctx.Err() == nil:
			p.log.Warn("lock of the embedded index is not held while the database cannot be reached", "error",
				err)
		}
	}
}

// alive says whether the connection, and so the lock, is still there. A dead connection is closed.
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
