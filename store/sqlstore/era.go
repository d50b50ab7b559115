package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// An era is the time in which connections to PostgreSQL may be used again. It ends when one of them turns out to be read-only: its
// server has become a standby, or the setting was given for new sessions. A session keeps that for as long as it lives, and would be
// used for ever; one that is opened anew may meet a server, or a setting, that lets it write.
type era struct {
	number atomic.Int64
	// began is when it did, in Unix nanoseconds.
	began atomic.Int64
}

// eraLength is the least that an era lasts: while nobody can write, reads must not open a connection each.
const eraLength = time.Second

// eraKey is where a connection carries the era that it was opened in.
const eraKey = "dispatcher.era"

// end makes every connection that is open now be closed when it is next wanted.
func (e *era) end() {
	began, now := e.began.Load(), time.Now().UnixNano()
	if now-began >= eraLength.Nanoseconds() && e.began.CompareAndSwap(began, now) {
		e.number.Add(1)
	}
}

// options have connections know their era, and prepare them with prepare, unless it is nil.
func (e *era) options(prepare func(context.Context, *pgx.Conn) error) []stdlib.OptionOpenDB {
	return []stdlib.OptionOpenDB{
		stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			conn.PgConn().CustomData()[eraKey] = e.number.Load()
			if prepare == nil {
				return nil
			}
			return prepare(ctx, conn)
		}),
		stdlib.OptionResetSession(func(_ context.Context, conn *pgx.Conn) error {
			if conn.PgConn().CustomData()[eraKey] != e.number.Load() {
				return driver.ErrBadConn // the pool closes it and takes another
			}
			return nil
		}),
	}
}

// readOnly says that PostgreSQL refused to write because the session may only read.
func readOnly(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "25006"
}
